// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <utility>
#include <vector>

namespace bathys::io {

// Runs jobs 0 .. n_jobs - 1 in threads of their own, as many at once as there are slots to put their results into, and
// hands the results over in order.
//   Slot  what a job fills; moved into place before the first job starts
//   fill  does a job; runs in several threads at once
//   soon  is told of a job kHintedAhead jobs before it, so that the kernel can be asked for what the job
//         will read; runs in several threads at once
template <class Slot>
class ReadAhead {
 public:
  using Fill = std::function<void(std::size_t job, Slot& slot)>;
  using Soon = std::function<void(std::size_t job)>;
  static constexpr std::size_t kHintedAhead = 6;

  ReadAhead(std::size_t n_jobs, std::vector<Slot> slots, Fill fill, Soon soon)
      : n_jobs_(n_jobs),
        slots_(std::move(slots)),
        running_(slots_.size()),
        fill_(std::move(fill)),
        soon_(std::move(soon)) {
    for (std::size_t job = 0; job < kHintedAhead; ++job) hint(job);
    while (started_ < n_jobs_ && started_ < slots_.size()) start();
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead() {
    for (std::future<void>& job : running_) {
      if (job.valid()) job.wait();
    }
  }

  // Waits for the next job's result.  It and the one before stay valid until release().
  //   throws what the job threw
  Slot& take() {
    const std::size_t place = taken_ % slots_.size();
    running_[place].get();
    ++taken_;
    return slots_[place];
  }
  // The result that was taken before the last one.
  Slot& before() { return slots_[(taken_ - 2) % slots_.size()]; }
  // Gives up all results but the last: their slots go to further jobs.
  void release() {
    while (started_ < n_jobs_ && started_ + 1 < taken_ + slots_.size()) start();
  }

 private:
  void start() {
    const std::size_t job = started_++;
    Slot& slot = slots_[job % slots_.size()];
    running_[job % slots_.size()] = std::async(std::launch::async, [this, job, &slot] {
      hint(job + kHintedAhead);
      fill_(job, slot);
    });
  }
  void hint(std::size_t job) const {
    if (job < n_jobs_) soon_(job);
  }

  std::size_t n_jobs_;
  std::vector<Slot> slots_;
  std::vector<std::future<void>> running_;
  Fill fill_;
  Soon soon_;
  std::size_t started_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace bathys::io
