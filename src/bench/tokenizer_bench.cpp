// SPDX-License-Identifier: Apache-2.0
#include "bench/tokenizer_bench.hpp"

#include "core/error.hpp"
#include "core/timer.hpp"
#include "tokenizer/unicode.hpp"

#include <algorithm>
#include <ostream>
#include <vector>

#include <fmt/format.h>

namespace bathys::bench {
namespace {

// Seconds of the fastest call.
template <class Call>
double fastest(double seconds, Call&& call) {
  double best = 1e9;
  const Timer all;
  do {
    const Timer one;
    call();
    best = std::min(best, one.seconds());
  } while (all.seconds() < seconds);
  return best;
}

}  // namespace

void bench_tokenizer(const std::function<tokenizer::Tokenizer()>& open, std::span<const std::string> texts,
                     double seconds, std::ostream& out) {
  const double startup = fastest(seconds, [&] { (void)open(); });
  const tokenizer::Tokenizer tokenizer = open();
  std::size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();

  std::vector<std::vector<tokenizer::TokenId>> ids;
  const double encode = fastest(seconds, [&] { ids = tokenizer.encode_batch(texts, 1); });
  std::size_t tokens = 0;
  for (const auto& list : ids) tokens += list.size();

  std::vector<std::string> back(texts.size());
  const double decode = fastest(seconds, [&] {
    for (std::size_t i = 0; i < ids.size(); ++i) back[i] = tokenizer.decode(ids[i]);
  });
  for (std::size_t i = 0; i < texts.size(); ++i) {
    require(back[i] == tokenizer::to_valid_utf8(texts[i]), ExitCode::internal,
            "text {} does not come back from its token ids", i + 1);
  }
  const double megabytes = static_cast<double>(bytes) * 1e-6;
  out << fmt::format(
      "event=tokenizer texts={} bytes={} tokens={} startup_s={:.4f} encode_mb_per_s={:.2f} decode_mb_per_s={:.2f}\n",
      texts.size(), bytes, tokens, startup, megabytes / encode, megabytes / decode);
}

}  // namespace bathys::bench
