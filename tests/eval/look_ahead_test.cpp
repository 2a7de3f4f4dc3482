// SPDX-License-Identifier: Apache-2.0
#include "eval/look_ahead.hpp"

#include "core/error.hpp"
#include "eval/run_counters.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

using namespace std::chrono_literals;

PreparedTask task_of(std::size_t index, std::size_t tokens = 1) {
  engine::GenerateJob job;
  job.prompt.assign(tokens, static_cast<std::int32_t>(index));
  PreparedTask task;
  task.job = std::move(job);
  return task;
}

std::int32_t index_of(const PreparedTask& task) { return std::get<engine::GenerateJob>(task.job).prompt.at(0); }

// A tokenizer that works when it is told to.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  // Whether so many came in before ten seconds were over.
  bool wait_inside(int n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 10s, [&] { return inside_ >= n; });
  }
  int inside() {
    const std::lock_guard lock(mutex_);
    return inside_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int inside_ = 0;
};

bool eventually(const std::function<bool()>& holds) {
  for (const auto end = std::chrono::steady_clock::now() + 10s; std::chrono::steady_clock::now() < end;) {
    if (holds()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

TEST(LookAhead, HandsOutInTheOrderAskedForWhateverTakesHowLong) {
  for (const int threads : {0, 1, 2, 5}) {
    LookAhead ahead(
        [](std::size_t index) {
          std::this_thread::sleep_for(std::chrono::microseconds(index % 7 == 0 ? 900 : index % 3 * 50));
          return task_of(index);
        },
        {.threads = threads});
    std::size_t asked = 0, taken = 0;
    while (taken < 200) {
      while (asked < 200 && ahead.waiting() < 40) ahead.ask(asked++);
      const auto [index, task] = ahead.take();
      EXPECT_EQ(index, taken);
      EXPECT_EQ(index_of(task), static_cast<std::int32_t>(taken));
      ++taken;
    }
    EXPECT_EQ(ahead.waiting(), 0);
  }
}

TEST(LookAhead, PreparesWhileTheCallerDoesSomethingElse) {
  std::atomic<int> prepared{0};
  LookAhead ahead([&](std::size_t index) { return ++prepared, task_of(index); }, {.threads = 1});
  for (std::size_t i = 0; i < 8; ++i) ahead.ask(i);
  EXPECT_TRUE(eventually([&] { return prepared == 8; }));  // nobody has taken one
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(ahead.take().first, i);
  EXPECT_EQ(prepared, 8);  // each once
}

TEST(LookAhead, HoldsNoMoreTokensThanItsBoundAndOneTask) {
  std::atomic<int> prepared{0};
  LookAhead ahead([&](std::size_t index) { return ++prepared, task_of(index, 100); }, {.threads = 1, .tokens = 250});
  for (std::size_t i = 0; i < 20; ++i) ahead.ask(i);
  for (int taken = 0; taken < 10; ++taken) {
    EXPECT_TRUE(eventually([&] { return prepared == taken + 3; }));
    std::this_thread::sleep_for(2ms);
    EXPECT_EQ(prepared, taken + 3);  // 300 tokens wait
    ahead.take();
  }
}

TEST(LookAhead, WhatNoThreadHasBegunTheCallerPreparesItself) {
  Gate gate;
  LookAhead ahead(
      [&](std::size_t index) {
        if (index == 0) gate.pass();
        return task_of(index);
      },
      {.threads = 1});
  ahead.ask(0);
  ASSERT_TRUE(gate.wait_inside(1));
  ahead.drop();  // its thread is still at it
  EXPECT_EQ(ahead.waiting(), 0);
  ahead.ask(1);
  ahead.ask(2);
  EXPECT_EQ(ahead.take().first, 1U);
  gate.open();
  EXPECT_EQ(ahead.take().first, 2U);
}

TEST(LookAhead, AnEndDoesNotWaitForWhatWasNotBegun) {
  Gate gate;
  std::atomic<int> prepared{0};
  {
    LookAhead ahead([&](std::size_t index) { return gate.pass(), ++prepared, task_of(index); }, {.threads = 2});
    for (std::size_t i = 0; i < 100; ++i) ahead.ask(i);
    ASSERT_TRUE(gate.wait_inside(2));
    ahead.drop();
    gate.open();
  }
  EXPECT_EQ(prepared, 2);
}

TEST(LookAhead, AnErrorOfAThreadComesWhereItsTaskWould) {
  for (const int threads : {0, 1, 3}) {
    LookAhead ahead(
        [](std::size_t index) {
          require(index != 2, ExitCode::internal, "task {} is bad", index);
          return task_of(index);
        },
        {.threads = threads});
    for (std::size_t i = 0; i < 4; ++i) ahead.ask(i);
    EXPECT_EQ(ahead.take().first, 0U);
    EXPECT_EQ(ahead.take().first, 1U);
    EXPECT_THROW(ahead.take(), Error);
    EXPECT_EQ(ahead.take().first, 3U);
  }
}

TEST(LookAhead, WaitsForNothingWhereFewRequestsAreLeftForOthers) {
  EXPECT_EQ(look_ahead_of(1'000'000, 1), 256);
  EXPECT_EQ(look_ahead_of(3, 1), 3);
  EXPECT_EQ(look_ahead_of(1'000'000, 8), 256);
  EXPECT_EQ(look_ahead_of(100, 4), 6);
  EXPECT_EQ(look_ahead_of(15, 4), 0);
  EXPECT_LE(look_ahead_of(0, 1), 0);
  EXPECT_LE(look_ahead_of(-5, 4), 0);
}

}  // namespace
}  // namespace bathys::eval
