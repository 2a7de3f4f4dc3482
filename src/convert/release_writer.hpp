// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/tensor_table.hpp"
#include "config/model_config.hpp"
#include "io/shard_index.hpp"
#include "parallel/collectives.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace bathys::convert {

// A model to be written as a checkpoint in the released layout.
struct ReleaseSource {
  config::ModelConfig config;
  const io::ShardIndex* texts = nullptr;  // config.json, tokenizer.json, tokenizer_config.json, byte for byte
  // Fills `out` with bytes of a tensor from `offset` on; called by ascending file and offset.
  std::function<void(const catalog::TensorSpec& spec, std::uint64_t offset, std::span<std::byte> out)> read;
  std::string mark_name;  // small file that says what the folder holds and how it was made ..
  std::string mark_text;  // .. and its text, the same for the same model alone
};

struct ReleaseOptions {
  std::string event = "convert";  // of the progress lines
  double progress_s = 5.0;
  std::function<void()> alive;  // called twice a second, when given
};

struct ReleaseReport {
  std::int64_t files = 0;
  std::int64_t files_kept = 0;      // of these, found whole from an earlier run
  std::uint64_t bytes_written = 0;  // payload, on all ranks
  double seconds = 0;
};

// Writes config.json, tokenizer.json, safetensors files named as in the release and, last, their index.  Collective
// over `world`: each rank writes files of its own.  Stopped at any point, the same call goes on; files appear whole.
//   throws AgreedError: usage for a folder that holds anything else, stopped for a signal, as io::fail_write, or what
//   source.read threw
ReleaseReport write_release(parallel::Collectives& world, const ReleaseSource& source, const std::string& folder,
                            const ReleaseOptions& options = {});

}  // namespace bathys::convert
