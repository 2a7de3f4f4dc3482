// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/request.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bathys::eval {

// A request and those of its answers that are still wanted.
using TodoItem = std::pair<std::size_t, std::vector<std::int32_t>>;

// The order to work in.  Requests whose contexts begin alike stand together, so that the engine meets a common
// beginning while it still holds it; families stand longest first, so that the end of a run is made of short ones and
// no rank is left alone with a long one.  Changes no result.
void sort_for_running(const std::vector<Request>& requests, std::vector<TodoItem>& todo);

}  // namespace bathys::eval
