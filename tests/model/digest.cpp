// SPDX-License-Identifier: Apache-2.0
// Prints one line that stands for the bits of many logits of a model; digest_test.sh compares the lines of runs on
// different ranks, threads and instruction sets.   usage: digest NAME LENGTH..., with BATHYS_SIMD=AVX2 the bodies of
// that instruction set
#include "kernels/linear_job.hpp"
#include "model/support.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <Kokkos_Core.hpp>
#include <mpi.h>

namespace {

// FNV-1a over the bit patterns.
std::uint64_t digest(const std::vector<std::vector<float>>& logits, std::uint64_t hash) {
  for (const auto& row : logits) {
    for (const float v : row) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &v, sizeof bits);
      for (int i = 0; i < 4; ++i) hash = (hash ^ (bits >> (8 * i) & 0xffU)) * 0x100000001b3ULL;
    }
  }
  return hash;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  {
    Kokkos::ScopeGuard kokkos(argc, argv);
    const char* const simd = std::getenv("BATHYS_SIMD");
    if (simd != nullptr && !bathys::kernels::limit_linear_simd(simd)) {
      std::fprintf(stderr, "no bodies for %s here\n", simd);
      std::abort();
    }
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    const auto model = bathys::test::load_test_model(argv[1], {.max_rows = 1024, .head_rows = 16, .cone = false});
    for (int i = 2; i < argc; ++i) {
      const std::int64_t n = std::atoll(argv[i]);
      const auto tokens = bathys::test::random_tokens(n, model->config().vocab_size, static_cast<std::uint64_t>(n));
      hash = digest(bathys::test::logits_in_chunks(*model, tokens, {n / 2 + 1, 1, n}), hash);
    }
    if (bathys::test::test_ranks().rank() == 0)
      std::printf("%s %016llx\n", argv[1], static_cast<unsigned long long>(hash));
  }
  MPI_Finalize();
}
