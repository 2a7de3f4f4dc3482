// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <gtest/gtest.h>
#include <stdlib.h>

namespace bathys::test {

// A fresh folder, removed with all it holds at the end of the test.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "bathys_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  // The folder, or the path of something in it.
  [[nodiscard]] std::string path(std::string_view name = {}) const {
    return name.empty() ? path_ : path_ + "/" + std::string(name);
  }

 private:
  std::string path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void spit(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

// Expects that `work` throws an Error of this code whose text holds all of `words`.
template <class Work>
void expect_error(ExitCode code, std::initializer_list<std::string_view> words, Work&& work) {
  try {
    work();
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string_view word : words) {
      EXPECT_NE(std::string_view(error.what()).find(word), std::string_view::npos)
          << "no \"" << word << "\" in: " << error.what();
    }
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << "not one line: " << error.what();
  }
}

}  // namespace bathys::test
