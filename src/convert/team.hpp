// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

// How the ranks of a job share work on files: each has parts of its own and goes on without the others but for a beat
// every half second, at which they add up what was done, stop together and find out who failed.
namespace bathys::convert {

// Bytes done by one short step of this rank's work (at most some pieces), or nothing when none is left.
using Step = std::function<std::optional<std::uint64_t>()>;

struct TeamOptions {
  std::string event;               // of the progress lines
  double progress_s = 5.0;         // seconds between them
  std::uint64_t total_bytes = 0;   // of all ranks together, for the estimate
  std::function<void()> alive;     // called at each beat, when given: long work is no hang
  bool report_first_rank = false;  // after a failure lower ranks go on, so that the lowest one that fails is reported
};

struct TeamReport {
  std::uint64_t bytes = 0;  // done by all ranks
  bool stopped = false;     // a signal asked for a stop before the work was done
};

// Takes this rank's steps until every rank has none left or a signal stops them all.  Collective over `world`.
//   throws AgreedError on all ranks when a step of any rank threw
TeamReport work_together(parallel::Collectives& world, const TeamOptions& options, const Step& step);

// throws AgreedError(stopped) on all ranks when a signal ended the work.
void require_not_stopped(bool stopped);

// Shares out items of these sizes, largest first, each to the member that has least so far.
//   returns the member of each item; the same on all ranks
[[nodiscard]] std::vector<int> share_out(const std::vector<std::uint64_t>& sizes, int members);

// Rank 0's lines, none of which holds a line end, on all ranks.  Collective.
[[nodiscard]] std::vector<std::string> broadcast_lines(parallel::Collectives& world,
                                                       const std::vector<std::string>& lines);

}  // namespace bathys::convert
