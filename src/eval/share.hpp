// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/pulse.hpp"
#include "eval/request.hpp"
#include "eval/run_folder.hpp"

#include <cstdint>
#include <string>
#include <vector>

// A request file answered by several runs, each a share of it in a folder of its own, and put together again.
namespace bathys::eval {

// Every count-th request line, from the index-th (0 .. count-1).  All by default.
struct Share {
  std::int64_t index = 0, count = 1;
};

// Its name in a run's identity.
inline constexpr const char* kShareKey = "share";

// "K/N".  throws Error(usage)
Share read_share(const std::string& text);
// "K/N"; "all" for the whole.
[[nodiscard]] std::string to_string(const Share& share);

// The requests of a share, in their order.  Prompts of one line stay together.
std::vector<Request> keep_share(std::vector<Request> requests, const Share& share);

// What the lines of a run's journal are bound to (journal.hpp): a hash of all that its answers depend on.  The shares
// of a run have the same.
[[nodiscard]] std::string journal_run(const RunIdentity& identity);

// Copies the journals of other runs into this folder's journal, each of their starts as one; those that are there
// already are left alone, so that it may be done again.  Records then count as if this run had made them: equal ones
// collapse, contradicting ones are refused.
//   throws Error(usage) when another process works in a source, or what its answers depend on differs from `identity`
//   in more than the share (naming it); Error(bad_input) when a source is no run folder or cannot be read
void take_journals(const RunFolder& folder, const RunIdentity& identity, const std::vector<std::string>& sources,
                   const Pulse& pulse = {});

}  // namespace bathys::eval
