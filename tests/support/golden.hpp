// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bathys::test {

// One dataset of a golden file (tests/golden/README.md): floats, integers or bytes, with its float attributes.
struct GoldenArray {
  std::vector<std::int64_t> shape;
  std::vector<float> f;         // float32 datasets
  std::vector<std::int64_t> i;  // integer and byte datasets
  std::map<std::string, double> attributes;

  [[nodiscard]] std::int64_t size() const;
  [[nodiscard]] std::int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  [[nodiscard]] std::int64_t row_size() const { return rows() == 0 ? 0 : size() / rows(); }
  [[nodiscard]] std::vector<std::uint8_t> bytes() const;  // integer dataset narrowed to bytes
  [[nodiscard]] double attribute(const std::string& name) const;
};

// Reads golden HDF5 files, by dataset path.  Throws std::runtime_error naming file and dataset.
class GoldenFile {
 public:
  // `name` below tests/golden, e.g. "ops.h5" or "base/golden.h5".
  explicit GoldenFile(const std::string& name);
  ~GoldenFile();
  GoldenFile(const GoldenFile&) = delete;
  GoldenFile& operator=(const GoldenFile&) = delete;

  [[nodiscard]] bool has(const std::string& path) const;
  [[nodiscard]] GoldenArray array(const std::string& path) const;
  // Attribute of a group or dataset as a number (bools are 0 or 1).
  [[nodiscard]] double attribute(const std::string& path, const std::string& name) const;
  [[nodiscard]] std::string text_attribute(const std::string& path, const std::string& name) const;
  // Names of the members of a group, sorted.
  [[nodiscard]] std::vector<std::string> members(const std::string& path) const;

 private:
  std::string name_;
  std::int64_t file_ = -1;
};

// Checks float output against a golden tensor.  tests/golden/README.md, tolerances 1: bf16 outputs at most one bf16
// step off, in at most 1 element of 200; float32 outputs within 1e-5 of the tensor's rms or 1e-4 relative.
void expect_bf16_close(const std::vector<float>& got, const GoldenArray& want, const std::string& what);
void expect_f32_close(const std::vector<float>& got, const GoldenArray& want, const std::string& what,
                      double relative = 1e-4);

}  // namespace bathys::test
