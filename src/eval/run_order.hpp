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

// Tokens that are plenty for one group to hold before their turn: a megabyte.
inline constexpr std::int64_t kPlentyOfTokens = std::int64_t{1} << 18;

// Answers of one item at most, and where contexts are long: who takes an item holds the tokens of all its sequences.
inline constexpr std::size_t kMostRepeats = 64, kLeastRepeats = 8;

// The order to work in.  Requests whose contexts begin alike stand together, so that the engine meets a common
// beginning while it still holds it; families stand longest first, so that the end of a run is made of short ones and
// no rank is left alone with a long one.  Of a request with more than kMostRepeats answers wanted it makes several
// items, one after the other.  Changes no result.
void sort_for_running(const std::vector<Request>& requests, std::vector<TodoItem>& todo);

}  // namespace bathys::eval
