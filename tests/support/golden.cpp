// SPDX-License-Identifier: Apache-2.0
#include "support/golden.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include <gtest/gtest.h>
#include <hdf5.h>

namespace bathys::test {
namespace {

double read_number(hid_t attribute) {
  const hid_t type = H5Aget_type(attribute);
  double value = 0;
  if (H5Tget_class(type) == H5T_ENUM) {  // h5py stores a bool as an enum of int8
    std::int8_t raw = 0;
    H5Aread(attribute, type, &raw);
    value = raw;
  } else {
    H5Aread(attribute, H5T_NATIVE_DOUBLE, &value);
  }
  H5Tclose(type);
  return value;
}

bool is_scalar_number(hid_t attribute) {
  const hid_t space = H5Aget_space(attribute);
  const hid_t type = H5Aget_type(attribute);
  const H5T_class_t kind = H5Tget_class(type);
  const bool yes =
      H5Sget_simple_extent_npoints(space) == 1 && (kind == H5T_INTEGER || kind == H5T_FLOAT || kind == H5T_ENUM);
  H5Tclose(type);
  H5Sclose(space);
  return yes;
}

herr_t collect_attribute(hid_t location, const char* name, const H5A_info_t*, void* out) {
  const hid_t attribute = H5Aopen(location, name, H5P_DEFAULT);
  if (is_scalar_number(attribute)) (*static_cast<std::map<std::string, double>*>(out))[name] = read_number(attribute);
  H5Aclose(attribute);
  return 0;
}

herr_t collect_name(hid_t, const char* name, const H5L_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

}  // namespace

std::int64_t GoldenArray::size() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

std::vector<std::uint8_t> GoldenArray::bytes() const {
  std::vector<std::uint8_t> out(i.size());
  std::transform(i.begin(), i.end(), out.begin(), [](std::int64_t v) { return static_cast<std::uint8_t>(v); });
  return out;
}

double GoldenArray::attribute(const std::string& name) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) throw std::runtime_error("golden dataset lacks the attribute " + name);
  return found->second;
}

GoldenFile::GoldenFile(const std::string& name) : name_(name) {
  const std::string path = std::string(BATHYS_TEST_DATA) + "/golden/" + name;
  file_ = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file_ < 0) throw std::runtime_error("cannot open " + path);
}

GoldenFile::~GoldenFile() { H5Fclose(file_); }

bool GoldenFile::has(const std::string& path) const {
  std::string prefix;
  for (std::size_t at = 0; at != std::string::npos;) {
    at = path.find('/', at + 1);
    prefix = path.substr(0, at);
    if (H5Lexists(file_, prefix.c_str(), H5P_DEFAULT) <= 0) return false;
  }
  return true;
}

GoldenArray GoldenFile::array(const std::string& path) const {
  const hid_t set = has(path) ? H5Dopen2(file_, path.c_str(), H5P_DEFAULT) : -1;
  if (set < 0) throw std::runtime_error(name_ + " has no dataset " + path);
  GoldenArray out;
  const hid_t space = H5Dget_space(set);
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> extents(static_cast<std::size_t>(std::max(rank, 0)));
  H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  out.shape.assign(extents.begin(), extents.end());
  const hid_t type = H5Dget_type(set);
  if (H5Tget_class(type) == H5T_FLOAT) {
    out.f.resize(static_cast<std::size_t>(out.size()));
    H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.f.data());
  } else {
    out.i.resize(static_cast<std::size_t>(out.size()));
    H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.i.data());
  }
  hsize_t at = 0;
  H5Aiterate2(set, H5_INDEX_NAME, H5_ITER_INC, &at, collect_attribute, &out.attributes);
  H5Tclose(type);
  H5Sclose(space);
  H5Dclose(set);
  return out;
}

double GoldenFile::attribute(const std::string& path, const std::string& name) const {
  const hid_t attribute = H5Aopen_by_name(file_, path.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  if (attribute < 0) throw std::runtime_error(name_ + ": " + path + " has no attribute " + name);
  const double value = read_number(attribute);
  H5Aclose(attribute);
  return value;
}

std::string GoldenFile::text_attribute(const std::string& path, const std::string& name) const {
  const hid_t attribute = H5Aopen_by_name(file_, path.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  if (attribute < 0) throw std::runtime_error(name_ + ": " + path + " has no attribute " + name);
  const hid_t type = H5Aget_type(attribute);
  std::string out;
  if (H5Tis_variable_str(type) > 0) {
    char* text = nullptr;
    H5Aread(attribute, type, &text);
    out = text;
    H5free_memory(text);
  } else {
    out.resize(H5Tget_size(type));
    H5Aread(attribute, type, out.data());
    out.resize(out.find('\0') == std::string::npos ? out.size() : out.find('\0'));
  }
  H5Tclose(type);
  H5Aclose(attribute);
  return out;
}

std::vector<std::string> GoldenFile::members(const std::string& path) const {
  std::vector<std::string> names;
  const hid_t group = H5Gopen2(file_, path.c_str(), H5P_DEFAULT);
  if (group < 0) throw std::runtime_error(name_ + " has no group " + path);
  H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_name, &names);
  H5Gclose(group);
  return names;
}

namespace {

// The bf16 number as an integer on a line without a gap at zero, so that a difference counts steps.
std::int32_t step_of(float v) {
  const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(v) >> 16);
  return bits & 0x8000 ? -(bits & 0x7fff) : bits;
}

}  // namespace

void expect_bf16_close(const std::vector<float>& got, const GoldenArray& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.f.size()) << what;
  std::size_t off = 0;
  for (std::size_t n = 0; n < got.size(); ++n) {
    const int steps = std::abs(step_of(got[n]) - step_of(want.f[n]));
    ASSERT_LE(steps, 1) << what << "[" << n << "]: " << got[n] << ", golden " << want.f[n];
    off += steps != 0;
  }
  EXPECT_LE(off, std::max<std::size_t>(got.size() / 200, 0))
      << what << ": elements one bf16 step off, of " << got.size();
}

void expect_f32_close(const std::vector<float>& got, const GoldenArray& want, const std::string& what,
                      double relative) {
  ASSERT_EQ(got.size(), want.f.size()) << what;
  double square = 0;
  for (const float v : want.f) square += double(v) * double(v);
  const double rms = std::sqrt(square / double(std::max<std::size_t>(want.f.size(), 1)));
  for (std::size_t n = 0; n < got.size(); ++n) {
    const double allowed = std::max(1e-5 * rms, relative * std::fabs(double(want.f[n])));
    ASSERT_LE(std::fabs(double(got[n]) - double(want.f[n])), allowed)
        << what << "[" << n << "]: " << got[n] << ", golden " << want.f[n];
  }
}

}  // namespace bathys::test
