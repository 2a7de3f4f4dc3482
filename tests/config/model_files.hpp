// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace bathys::test {

// A file of the source tree, by its path from the root.
inline std::string source_path(const std::string& path) { return std::string(BATHYS_TEST_DATA) + "/../" + path; }

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline config::ModelConfig config_of(const std::string& path) {
  return config::read_model_config(read_text(source_path(path)), path);
}

inline config::ModelConfig released_config() { return config_of("inputs/models/released.json"); }

}  // namespace bathys::test
