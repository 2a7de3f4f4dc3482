// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bathys::engine {

// Says when a stop string first completes in the text that the drawn tokens decode to.  Stops straddle tokens and
// bytes; what the prompt ends with takes no part.
class StopMatcher {
 public:
  // Empty stops are ignored.  `tokenizer` outlives this; it may be null when no stop is left.
  StopMatcher(const tokenizer::Tokenizer* tokenizer, std::vector<std::string> stops);

  // True once any stop is complete.
  bool push(std::int32_t token);

 private:
  std::vector<std::string> stops_;
  std::size_t keep_ = 0;  // bytes of old text that a stop can still begin in
  std::optional<tokenizer::StreamDecoder> decoder_;
  std::string tail_;
};

}  // namespace bathys::engine
