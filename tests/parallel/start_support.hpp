// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"
#include "parallel/threads.hpp"

#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace bathys::parallel {

// An environment that holds these variables only.
inline Environment with(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

// The words of the Error(usage) that `work` ends in, or "no error".
template <class Work>
std::string usage_error(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "no error";
}

}  // namespace bathys::parallel
