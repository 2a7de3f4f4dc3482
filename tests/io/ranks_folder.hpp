// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/temp_folder.hpp"
#include "parallel/agree.hpp"
#include "parallel/collectives.hpp"

#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace bathys::test {

// One scratch folder for all ranks of a test program, made by rank 0.
class RanksFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    world_ = parallel::make_world_collectives();
    if (world_->rank() == 0) folder_.emplace();
    root_ = world_->broadcast_host(folder_ ? folder_->path() : std::string(), 0);
  }
  void TearDown() override { world_->barrier(); }

  // Runs `work` on rank 0 while no other rank is at the folder.
  template <class Work>
  void on_first_rank(Work&& work) {
    world_->barrier();
    if (world_->rank() == 0) work();
    world_->barrier();
  }
  // The words in which all ranks alike refuse with this code, or "nothing".
  template <class Work>
  std::string agreed_refusal(ExitCode code, Work&& work) {
    std::string text = "nothing";
    try {
      work();
    } catch (const parallel::AgreedError& error) {
      text = error.what();
      EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << text;
    }
    EXPECT_EQ(world_->broadcast_host(text, 0), text);
    return text;
  }
  [[nodiscard]] std::string path(const std::string& name) const { return root_ + "/" + name; }

  std::unique_ptr<parallel::Collectives> world_;

 private:
  std::optional<TempFolder> folder_;
  std::string root_;
};

}  // namespace bathys::test
