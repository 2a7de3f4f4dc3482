// SPDX-License-Identifier: Apache-2.0
#include "eval/run_order.hpp"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

using ::testing::ElementsAre;

Generate draws(Context context, std::int64_t max_gen_toks, std::int32_t repeats) {
  Generate generate;
  generate.context = std::move(context);
  generate.max_gen_toks = max_gen_toks;
  generate.repeats = repeats;
  return generate;
}

class Order : public ::testing::Test {
 protected:
  void choices(const std::string& context) {
    Request request;
    request.body = Loglikelihood{context, std::vector<std::string>{" a", " b"}, false, {}};
    add(std::move(request));
  }
  void add(Request request) {
    todo_.push_back({requests_.size(), {0}});
    requests_.push_back(std::move(request));
  }
  std::vector<std::size_t> sorted() {
    sort_for_running(requests_, todo_);
    std::vector<std::size_t> out;
    for (const TodoItem& item : todo_) out.push_back(item.first);
    return out;
  }
  std::vector<Request> requests_;
  std::vector<TodoItem> todo_;
};

TEST_F(Order, LongestFirst) {
  choices("short");
  choices("quite a bit longer");
  Request rolling;
  rolling.body = Rolling{std::string(5000, 'x'), false};
  add(std::move(rolling));
  Request generate;
  generate.body = draws(std::string("p"), 400, 1);
  add(std::move(generate));
  EXPECT_THAT(sorted(), ElementsAre(2, 3, 1, 0));
}

TEST_F(Order, EqualLengthsKeepTheirOrder) {
  choices("bb");
  choices("aa");
  choices("cc");
  EXPECT_THAT(sorted(), ElementsAre(0, 1, 2));
}

TEST_F(Order, ContextsThatBeginAlikeStandTogetherAtThePlaceOfTheLongest) {
  const std::string head(100, 'h');
  choices(head + "one");                         // 0
  choices("alone " + std::string(120, 'z'));     // 1: longer than 0 and 3, shorter than 4
  choices("tiny");                               // 2
  choices(head + "one and more");                // 3
  choices(head + "two" + std::string(90, 'q'));  // 4
  EXPECT_THAT(sorted(), ElementsAre(0, 3, 4, 1, 2));
}

TEST_F(Order, IdsAndRepeatsAreKept) {
  Request ids;
  ids.body = draws(TokenIds{1, 2, 3}, 1, 5);
  add(ids);
  ids.body = draws(TokenIds(64, 7), 1, 1);
  add(ids);
  todo_[0].second = {1, 4};
  EXPECT_THAT(sorted(), ElementsAre(1, 0));
  EXPECT_THAT(todo_[1].second, ElementsAre(1, 4));
}

TEST_F(Order, ManyAnswersOfOneRequestAreSeveralItemsInARow) {
  for (const auto& [context, most] :
       {std::pair(std::string("p"), kMostRepeats), std::pair(std::string(1 << 20, 'p'), kLeastRepeats)}) {
    requests_.clear();
    todo_.clear();
    const auto n = static_cast<std::int32_t>(2 * most + 3);
    Request request;
    request.body = draws(context, 4, n);
    add(std::move(request));
    todo_[0].second.resize(static_cast<std::size_t>(n));
    std::iota(todo_[0].second.begin(), todo_[0].second.end(), 0);
    EXPECT_THAT(sorted(), ElementsAre(0, 0, 0));
    std::vector<std::int32_t> repeats;
    for (const TodoItem& item : todo_) {
      EXPECT_LE(item.second.size(), most);
      repeats.insert(repeats.end(), item.second.begin(), item.second.end());
    }
    ASSERT_EQ(std::ssize(repeats), n);
    for (std::int32_t repeat = 0; repeat < n; ++repeat) EXPECT_EQ(repeats[static_cast<std::size_t>(repeat)], repeat);
  }
}

}  // namespace
}  // namespace bathys::eval
