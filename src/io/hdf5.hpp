// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hdf5.h>

// HDF5 files with owned ids and HDF5's own words in every error.  The library is not thread safe: one thread per
// process calls it.
namespace bathys::io::h5 {

// Owns one HDF5 id.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(hid_t id) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) Close(id_);
  }
  [[nodiscard]] hid_t get() const { return id_; }
  hid_t release() { return std::exchange(id_, H5I_INVALID_HID); }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

enum class Type { u8, u16, i32, f32 };  // little-endian in the file
[[nodiscard]] std::size_t type_bytes(Type type);

// What a reader needs to take a dataset's bytes from the file without HDF5.
struct DatasetInfo {
  Type type = Type::u8;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
  // Position of the contiguous data in the file; nothing when no data was ever written (or there is none, bytes 0).
  std::optional<std::uint64_t> offset;
};

// New objects of at least `threshold` bytes start at a multiple of `alignment`.
struct Alignment {
  std::uint64_t threshold = 1;
  std::uint64_t alignment = 1;
};

enum class Mode { read, modify };

// Errors of all members: Error naming the file, the object and HDF5's text; bad_input while reading, as io::fail_write
// while writing.
class File {
 public:
  // Creates or truncates.  The file's bytes depend on the calls made alone: no times are stored.
  static File create(const std::string& path, Alignment alignment);
  // Opened for reading no lock is taken (HDF5_USE_FILE_LOCKING overrides), so that read-only file systems serve.
  static File open(const std::string& path, Mode mode, Alignment alignment = {});
  // Closes with all objects of the file; the destructor does so too, but cannot report an error.
  void close();

  [[nodiscard]] const std::string& path() const { return path_; }
  // Bytes of the file that HDF5 knows of: a longer file holds something that it will never read.
  [[nodiscard]] std::uint64_t allocated_bytes() const;
  [[nodiscard]] bool has(const std::string& name) const;
  // Names of the members of a group, sorted.
  [[nodiscard]] std::vector<std::string> members(const std::string& group) const;
  [[nodiscard]] bool is_dataset(const std::string& name) const;

  void create_group(const std::string& name);
  // Contiguous, allocated at once, not filled: the caller writes every byte.
  void create_dataset(const std::string& name, Type type, const std::vector<std::int64_t>& shape);
  void write(const std::string& name, Type type, std::span<const std::byte> bytes);

  // Throws unless the dataset has a type of `Type` and is stored contiguously without filters.
  [[nodiscard]] DatasetInfo info(const std::string& name) const;
  // Reads a dataset whole.  Throws when it has more than `limit` bytes or was never written.
  [[nodiscard]] std::vector<std::byte> read(const std::string& name, std::uint64_t limit) const;
  [[nodiscard]] std::string read_text(const std::string& name, std::uint64_t limit) const;

  // `object` is a dataset or group; "/" is the root.  Texts are stored with fixed length; keep them below 64 KiB.
  void set_attribute(const std::string& object, const std::string& name, std::string_view text);
  void set_attribute(const std::string& object, const std::string& name, const std::vector<std::int64_t>& values);
  // Nothing when there is no such attribute; throws when it has another type.
  [[nodiscard]] std::optional<std::string> text_attribute(const std::string& object, const std::string& name) const;
  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers_attribute(const std::string& object,
                                                                            const std::string& name) const;

 private:
  File(std::string path, Mode mode) : path_(std::move(path)), mode_(mode) {}
  // Returns `value` unless it is negative, which HDF5 uses for failure.
  template <class T>
  T check(T value, std::string_view action, std::string_view object = {}) const;
  [[noreturn]] void fail_with_hdf5_text(std::string_view action, std::string_view object) const;
  [[nodiscard]] Handle<H5Oclose> open_object(const std::string& name) const;
  [[nodiscard]] Handle<H5Dclose> open_dataset(const std::string& name) const;

  std::string path_;
  Mode mode_;
  Handle<H5Fclose> file_;
};

}  // namespace bathys::io::h5
