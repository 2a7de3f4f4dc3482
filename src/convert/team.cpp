// SPDX-License-Identifier: Apache-2.0
#include "convert/team.hpp"

#include "core/log.hpp"
#include "core/timer.hpp"
#include "parallel/agree.hpp"
#include "parallel/signals.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>
#include <string_view>

namespace bathys::convert {
namespace {

constexpr double kBeatSeconds = 0.5;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

class Work {
 public:
  Work(parallel::Collectives& world, const TeamOptions& options, const Step& step)
      : world_(world), options_(options), step_(step) {}

  TeamReport run() {
    for (;;) {
      steps_of_a_beat();
      const Beat beat = meet();
      report_.bytes += static_cast<std::uint64_t>(beat.bytes);
      if (options_.alive) options_.alive();
      if (beat.failed > 0) end_after_failure(beat);
      if (beat.stopping > 0) report_.stopped = true;
      if (report_.stopped || beat.working == 0) return report_;
      print_progress();
    }
  }

 private:
  struct Beat {
    std::int64_t bytes = 0;     // done since the last beat
    std::int64_t working = 0;   // ranks with work left
    std::int64_t failed = 0;    // ranks that failed
    std::int64_t stopping = 0;  // ranks that were asked to stop
  };

  void steps_of_a_beat() {
    const Timer timer;
    while (working_ && !held_ && !parallel::stop_requested() && timer.seconds() < kBeatSeconds) {
      try {
        const std::optional<std::uint64_t> bytes = step_();
        working_ = bytes.has_value();
        since_beat_ += static_cast<std::int64_t>(bytes.value_or(0));
      } catch (...) {
        cause_ = parallel::cause_of(std::current_exception());
        working_ = false;
      }
    }
  }

  Beat meet() {
    std::array<std::int64_t, 4> sums = {since_beat_, working_ && !held_ ? 1 : 0, cause_ ? 1 : 0,
                                        parallel::stop_requested() ? 1 : 0};
    since_beat_ = 0;
    world_.all_reduce_host(sums, parallel::Reduce::sum);
    return {sums[0], sums[1], sums[2], sums[3]};
  }

  // With report_first_rank the ranks below the lowest failing one go on, the others hold.
  void end_after_failure(const Beat& beat) {
    if (options_.report_first_rank && beat.working > 0) {
      const std::int64_t lowest = world_.all_reduce_host(cause_ ? world_.rank() : world_.size(), parallel::Reduce::min);
      held_ = world_.rank() > lowest;
      if (world_.all_reduce_host(working_ && !held_ ? 1 : 0, parallel::Reduce::sum) > 0) return;
    }
    parallel::agree_on(world_, cause_);
  }

  void print_progress() {
    if (since_line_.seconds() < options_.progress_s) return;
    since_line_.restart();
    const double done = static_cast<double>(report_.bytes);
    const double rate = done / timer_.seconds();
    const double left = std::max(0.0, static_cast<double>(options_.total_bytes) - done);
    log::info(options_.event, "done_gib={:.2f} of_gib={:.2f} rate_gib_s={:.2f} left_s={:.0f} ranks={}", done / kGib,
              static_cast<double>(options_.total_bytes) / kGib, rate / kGib, rate > 0 ? left / rate : 0, world_.size());
  }

  parallel::Collectives& world_;
  const TeamOptions& options_;
  const Step& step_;
  TeamReport report_;
  bool working_ = true;
  bool held_ = false;  // a lower rank has failed
  std::int64_t since_beat_ = 0;
  std::optional<parallel::Cause> cause_;
  Timer timer_;
  Timer since_line_;
};

}  // namespace

TeamReport work_together(parallel::Collectives& world, const TeamOptions& options, const Step& step) {
  return Work(world, options, step).run();
}

void require_not_stopped(bool stopped) {
  if (stopped)
    throw parallel::AgreedError(ExitCode::stopped, "stopped by a signal; run the same command again to go on");
}

std::vector<int> share_out(const std::vector<std::uint64_t>& sizes, int members) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::uint64_t> load(static_cast<std::size_t>(members), 0);
  std::vector<int> member_of(sizes.size(), 0);
  for (const std::size_t item : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += sizes[item];
    member_of[item] = static_cast<int>(least - load.begin());
  }
  return member_of;
}

std::vector<std::string> broadcast_lines(parallel::Collectives& world, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  text = world.broadcast_host(text, 0);
  std::vector<std::string> received;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    received.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  return received;
}

}  // namespace bathys::convert
