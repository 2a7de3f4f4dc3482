// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_matcher.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <utility>

namespace bathys::engine {

StopMatcher::StopMatcher(const tokenizer::Tokenizer* tokenizer, std::vector<std::string> stops)
    : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
  for (const std::string& stop : stops_) keep_ = std::max(keep_, stop.size() - 1);
  if (stops_.empty()) return;
  require(tokenizer != nullptr, ExitCode::internal, "engine: stop strings need a tokenizer");
  decoder_.emplace(*tokenizer, true);
}

bool StopMatcher::push(std::int32_t token) {
  if (stops_.empty()) return false;
  tail_ += decoder_->push(token);
  const bool found = std::any_of(stops_.begin(), stops_.end(),
                                 [&](const std::string& stop) { return tail_.find(stop) != std::string::npos; });
  if (tail_.size() > keep_) tail_.erase(0, tail_.size() - keep_);
  return found;
}

}  // namespace bathys::engine
