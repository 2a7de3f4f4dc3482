// SPDX-License-Identifier: Apache-2.0
#include "eval/look_ahead.hpp"

#include "parallel/threads.hpp"

#include <system_error>

namespace bathys::eval {

std::int64_t count_tokens(const PreparedTask& task) {
  std::int64_t tokens = 0;
  if (const auto* score = std::get_if<engine::ScoreJob>(&task.job)) {
    for (const auto& sequence : score->sequences) tokens += std::ssize(sequence.tokens);
  }
  if (const auto* generate = std::get_if<engine::GenerateJob>(&task.job)) tokens = std::ssize(generate->prompt);
  return tokens;
}

LookAhead::LookAhead(Prepare prepare, Limits limits) : prepare_(std::move(prepare)), limits_(std::move(limits)) {
  try {
    for (int i = 0; i < limits_.threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // a limit of threads: those that there are do the work, or take() does
  }
}

LookAhead::~LookAhead() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  asked_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void LookAhead::ask(std::size_t index) {
  auto slot = std::make_shared<Slot>();
  slot->index = index;
  {
    const std::lock_guard lock(mutex_);
    slots_.push_back(std::move(slot));
  }
  asked_.notify_one();
}

std::pair<std::size_t, PreparedTask> LookAhead::take() {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Slot> slot = slots_.front();
  if (begun_ == 0) {
    slots_.pop_front();
    lock.unlock();
    return {slot->index, prepare_(slot->index)};
  }
  done_.wait(lock, [&] { return slot->done; });
  slots_.pop_front();
  --begun_;
  tokens_ -= slot->tokens;
  lock.unlock();
  asked_.notify_all();  // there is room for more
  if (slot->error) std::rethrow_exception(slot->error);
  return {slot->index, std::move(slot->task)};
}

void LookAhead::drop() {
  const std::lock_guard lock(mutex_);
  for (const auto& slot : slots_) slot->dropped = true;
  slots_.clear();
  begun_ = 0;
  tokens_ = 0;
}

void LookAhead::work() {
  if (!limits_.cpus.empty()) parallel::run_on_cpus(limits_.cpus);
  std::unique_lock lock(mutex_);
  while (true) {
    asked_.wait(lock, [this] { return ending_ || (begun_ < slots_.size() && tokens_ < limits_.tokens); });
    if (ending_) return;
    const std::shared_ptr<Slot> slot = slots_[begun_++];
    lock.unlock();
    PreparedTask task;
    std::exception_ptr error;
    try {
      task = prepare_(slot->index);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    slot->task = std::move(task);
    slot->error = error;
    slot->done = true;
    slot->tokens = slot->dropped ? 0 : count_tokens(slot->task);
    tokens_ += slot->tokens;
    done_.notify_all();
  }
}

}  // namespace bathys::eval
