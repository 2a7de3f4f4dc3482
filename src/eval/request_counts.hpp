// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "eval/request.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace bathys::eval {

// What a request file asks for, in sum: a report says with it what was measured.
class RequestCounts {
 public:
  void add(const Request& request);
  // {lines, kinds, temperatures, top_p, chats, add_bos, think_end}: how many requests of each; `chats` by their
  // thinking and effort as the request has them, "default" where it has none.
  [[nodiscard]] Json to_json() const;

 private:
  std::int64_t lines_ = 0, add_bos_ = 0;
  std::map<std::string, std::int64_t> kinds_, chats_, think_ends_;
  std::map<double, std::int64_t> temperatures_, top_ps_;
};

}  // namespace bathys::eval
