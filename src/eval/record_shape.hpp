// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "eval/request.hpp"

namespace bathys::eval {

// Whether a journal's `record` and `item` have every member, of the type and the length, that reports and result files
// take from an answer to `request` (make_records.cpp, run_loop.cpp write them).  What a damaged disk or a foreign hand
// left is no answer, though it be JSON and bear the request's hash.
[[nodiscard]] bool is_whole_record(const Request& request, const Json& record, const Json& item);

}  // namespace bathys::eval
