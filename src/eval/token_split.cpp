// SPDX-License-Identifier: Apache-2.0
#include "eval/token_split.hpp"

#include "tokenizer/unicode.hpp"

#include <algorithm>
#include <utility>

namespace bathys::eval {

TokenPair pair_of(TokenIds context, TokenIds continuation, std::int32_t prefix_token) {
  const bool prefixed = context.empty();
  if (prefixed) {
    context.push_back(prefix_token);
    if (!continuation.empty() && continuation.front() == prefix_token) continuation.erase(continuation.begin());
  }
  return {std::move(context), std::move(continuation), prefixed};
}

TokenPair split_pair(const tokenizer::Tokenizer& tokenizer, std::string_view context, std::string_view continuation,
                     std::int32_t prefix_token) {
  const std::string_view kept = tokenizer::strip_right(context);
  const std::string moved = std::string(context.substr(kept.size())).append(continuation);
  if (kept.empty()) return pair_of({}, tokenizer.encode(moved), prefix_token);
  TokenIds whole = tokenizer.encode(std::string(kept) + moved);
  TokenIds alone = tokenizer.encode(kept);
  // The joined text can have fewer tokens than the context alone; then nothing is left to score.
  const auto border = whole.begin() + static_cast<std::ptrdiff_t>(std::min(alone.size(), whole.size()));
  TokenIds rest(border, whole.end());
  whole.erase(border, whole.end());
  return {std::move(whole), std::move(rest), false};
}

Truncated truncate_pair(const TokenPair& pair, std::int64_t max_length) {
  Truncated out;
  TokenIds& tokens = out.sequence.tokens;
  tokens = pair.context;
  tokens.insert(tokens.end(), pair.continuation.begin(), pair.continuation.end());
  out.dropped = std::max<std::int64_t>(0, static_cast<std::int64_t>(tokens.size()) - (max_length + 1));
  tokens.erase(tokens.begin(), tokens.begin() + out.dropped);
  out.sequence.first_scored = static_cast<std::int64_t>(tokens.size() - pair.continuation.size());
  return out;
}

std::vector<engine::ScoredSequence> rolling_windows(const TokenIds& ids, std::int32_t prefix_token,
                                                    std::int64_t max_length) {
  std::vector<engine::ScoredSequence> windows;
  const auto n = static_cast<std::int64_t>(ids.size());
  for (std::int64_t begin = 0; begin < n; begin += max_length) {
    const std::int64_t end = std::min(begin + max_length, n);
    engine::ScoredSequence window;
    if (begin == 0) {
      window.tokens.push_back(prefix_token);
      window.tokens.insert(window.tokens.end(), ids.begin(), ids.begin() + end);
    } else {
      window.tokens.assign(ids.begin() + (end - max_length - 1), ids.begin() + end);
    }
    window.first_scored = static_cast<std::int64_t>(window.tokens.size()) - (end - begin);
    windows.push_back(std::move(window));
  }
  return windows;
}

std::int64_t count_pieces(std::string_view text) {
  std::int64_t runs = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const tokenizer::Utf8Step step = tokenizer::utf8_step(text, at);
    const bool space = step.valid && tokenizer::is_python_space(step.code_point);
    runs += space && !inside ? 1 : 0;
    inside = space;
    at += step.size;
  }
  return runs + 1;
}

}  // namespace bathys::eval
