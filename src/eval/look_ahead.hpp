// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/task.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace bathys::eval {

// Prepares tasks on threads of its own while the model steps, and hands them out in the order in which they were asked
// for: who gets which task, and when, does not depend on how fast they come.  ask, take, drop and waiting are for one
// thread.
class LookAhead {
 public:
  // Called from all threads at once.
  using Prepare = std::function<PreparedTask(std::size_t)>;

  struct Limits {
    int threads = 1;                              // 0: take() prepares; fewer where the system grants no more
    std::int64_t tokens = std::int64_t{1} << 18;  // prepared and not taken; the task that reaches it is the last
    std::vector<unsigned char> cpus = {};         // one bit each, where the threads may run; empty: as the caller
  };

  LookAhead(Prepare prepare, Limits limits);
  // Waits for the tasks in course, no more are begun.
  ~LookAhead();
  LookAhead(const LookAhead&) = delete;
  LookAhead& operator=(const LookAhead&) = delete;

  void ask(std::size_t index);
  // Asked for and not taken.
  [[nodiscard]] std::int64_t waiting() const { return static_cast<std::int64_t>(slots_.size()); }
  // The task asked for first, and its index.  Waits for the thread that has begun it; prepares it where none has.
  //   throws what `prepare` threw
  std::pair<std::size_t, PreparedTask> take();
  // Forgets all that wait, without waiting for those in course.
  void drop();

 private:
  struct Slot {
    std::size_t index = 0;
    bool done = false, dropped = false;
    std::int64_t tokens = 0;
    PreparedTask task;
    std::exception_ptr error;
  };
  void work();

  Prepare prepare_;
  Limits limits_;
  std::mutex mutex_;  // all below
  std::condition_variable asked_, done_;
  std::deque<std::shared_ptr<Slot>> slots_;
  std::size_t begun_ = 0;    // of slots_, its first ones
  std::int64_t tokens_ = 0;  // of slots that are done
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

// Tokens that a task holds.
[[nodiscard]] std::int64_t count_tokens(const PreparedTask& task);

}  // namespace bathys::eval
