// SPDX-License-Identifier: Apache-2.0
#include "io/hdf5.hpp"

#include "core/error.hpp"
#include "io/atomic_file.hpp"
#include "io/file.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace bathys::io::h5 {
namespace {

constexpr std::size_t kMaxAttributeBytes = 64000;  // of the 64 KiB an object header message may have

// Before the first call of the library.  Errors are reported by exceptions: HDF5 must not print its stack besides.  And
// it must not close files at exit: all are closed by then, but for one whose closing failed on a full disk, and trying
// again crashes 1.10.
void prepare_library() {
  static const bool done = [] {
    H5dont_atexit();
    return true;
  }();
  static_cast<void>(done);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

herr_t keep_innermost(unsigned n, const H5E_error2_t* error, void* text) {
  if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

// The errno in HDF5's words ("errno = 28"), or 0.
int errno_in(std::string_view text) {
  constexpr std::string_view kMark = "errno = ";
  int value = 0;
  const std::size_t at = text.find(kMark);
  if (at != std::string_view::npos) std::from_chars(text.data() + at + kMark.size(), text.data() + text.size(), value);
  return value;
}

hid_t file_type(Type type) {
  switch (type) {
    case Type::u8:
      return H5T_STD_U8LE;
    case Type::u16:
      return H5T_STD_U16LE;
    case Type::i32:
      return H5T_STD_I32LE;
    case Type::f32:
      return H5T_IEEE_F32LE;
  }
  fail(ExitCode::internal, "unknown HDF5 type");
}

std::optional<Type> known_type(hid_t type) {
  for (const Type candidate : {Type::u8, Type::u16, Type::i32, Type::f32}) {
    if (H5Tequal(type, file_type(candidate)) > 0) return candidate;
  }
  return std::nullopt;
}

Handle<H5Pclose> access_properties(Mode mode, Alignment alignment) {
  Handle<H5Pclose> properties(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_fclose_degree(properties.get(), H5F_CLOSE_STRONG);  // a forgotten object must not keep the file open
#if H5_VERSION_GE(1, 10, 2)
  H5Pset_libver_bounds(properties.get(), H5F_LIBVER_V18,
                       H5F_LIBVER_V18);  // compact, checksummed metadata; read by every HDF5 since 2008
#endif
  H5Pset_alignment(properties.get(), alignment.threshold, alignment.alignment);
  H5Pset_small_data_block_size(properties.get(), 0);  // else small data shares a block and is not aligned
#if H5_VERSION_GE(1, 10, 7)
  if (mode == Mode::read) H5Pset_file_locking(properties.get(), false, true);
#endif
  return properties;
}

Handle<H5Sclose> simple_space(const std::vector<std::int64_t>& shape) {
  std::vector<hsize_t> extents(shape.begin(), shape.end());
  return Handle<H5Sclose>(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr));
}

}  // namespace

std::size_t type_bytes(Type type) {
  switch (type) {
    case Type::u8:
      return 1;
    case Type::u16:
      return 2;
    case Type::i32:
    case Type::f32:
      return 4;
  }
  return 0;
}

void File::fail_with_hdf5_text(std::string_view action, std::string_view object) const {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &text);
  H5Eclear2(H5E_DEFAULT);
  const std::string name = object.empty() ? path_ : fmt::format("{}: {}", path_, object);
  if (mode_ == Mode::modify) {
    if (const int error = errno_in(text)) fail_write(error, name, action);
    fail(ExitCode::internal, "{}: cannot be {}: HDF5: {}", name, action, text);
  }
  fail(ExitCode::bad_input, "{}: cannot be {}: HDF5: {}", name, action, text.empty() ? "no reason given" : text);
}

template <class T>
T File::check(T value, std::string_view action, std::string_view object) const {
  if (value < 0) [[unlikely]] {
    fail_with_hdf5_text(action, object);
  }
  return value;
}

File File::create(const std::string& path, Alignment alignment) {
  prepare_library();
  File file(path, Mode::modify);
  const Handle<H5Pclose> creation(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  const auto access = access_properties(Mode::modify, alignment);
  file.file_ =
      Handle<H5Fclose>(file.check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), "created"));
  return file;
}

File File::open(const std::string& path, Mode mode, Alignment alignment) {
  prepare_library();
  if (mode == Mode::read) {  // better words than HDF5's for what is no HDF5 file at all
    const ReadFile plain(path);
    std::array<char, 64> head{};
    const std::size_t head_bytes = std::min<std::size_t>(head.size(), static_cast<std::size_t>(plain.size()));
    plain.read_at(0, std::as_writable_bytes(std::span(head).first(head_bytes)));
    const std::string what = describe_non_file({head.data(), head_bytes}, plain.size());
    require(what.empty(), ExitCode::bad_input, "{} is {}", path, what);
  }
  File file(path, mode);
  const auto access = access_properties(mode, alignment);
  const unsigned flags = mode == Mode::read ? H5F_ACC_RDONLY : H5F_ACC_RDWR;
  file.file_ = Handle<H5Fclose>(file.check(H5Fopen(path.c_str(), flags, access.get()), "opened"));
  return file;
}

void File::close() {
  if (file_.get() >= 0) check(H5Fclose(file_.release()), mode_ == Mode::read ? "closed" : "written");
}

std::uint64_t File::allocated_bytes() const {
  haddr_t end = 0;
  check(H5Fget_eoa(file_.get(), &end), "read");
  return end;
}

bool File::has(const std::string& name) const {
  // H5Lexists wants every group on the way to exist.
  for (std::size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    if (H5Lexists(file_.get(), name.substr(0, slash).c_str(), H5P_DEFAULT) <= 0) return false;
  }
  return H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT) > 0 &&
         H5Oexists_by_name(file_.get(), name.c_str(), H5P_DEFAULT) > 0;
}

std::vector<std::string> File::members(const std::string& group) const {
  const Handle<H5Gclose> id(check(H5Gopen2(file_.get(), group.c_str(), H5P_DEFAULT), "read", group));
  std::vector<std::string> names;
  const auto visit = [](hid_t /*group*/, const char* name, const H5L_info_t* /*info*/, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  check(H5Literate(id.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names), "read", group);
  std::sort(names.begin(), names.end());
  return names;
}

Handle<H5Oclose> File::open_object(const std::string& name) const {
  return Handle<H5Oclose>(check(H5Oopen(file_.get(), name.c_str(), H5P_DEFAULT), "opened", name));
}

Handle<H5Dclose> File::open_dataset(const std::string& name) const {
  require(has(name), mode_ == Mode::read ? ExitCode::bad_input : ExitCode::internal, "{}: has no dataset {}", path_,
          name);
  return Handle<H5Dclose>(check(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), "opened", name));
}

bool File::is_dataset(const std::string& name) const { return H5Iget_type(open_object(name).get()) == H5I_DATASET; }

void File::create_group(const std::string& name) {
  const Handle<H5Pclose> creation(H5Pcreate(H5P_GROUP_CREATE));
  H5Pset_obj_track_times(creation.get(), false);
  const Handle<H5Gclose> group(
      check(H5Gcreate2(file_.get(), name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), "created", name));
}

void File::create_dataset(const std::string& name, Type type, const std::vector<std::int64_t>& shape) {
  const Handle<H5Pclose> creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation.get(), false);
  const auto space = simple_space(shape);
  const Handle<H5Dclose> dataset(check(
      H5Dcreate2(file_.get(), name.c_str(), file_type(type), space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
      "created", name));
}

void File::write(const std::string& name, Type type, std::span<const std::byte> bytes) {
  const DatasetInfo dataset = info(name);
  require(dataset.bytes == bytes.size() && dataset.type == type, ExitCode::internal,
          "{}: {}: {} bytes given, it has {}", path_, name, bytes.size(), dataset.bytes);
  check(H5Dwrite(open_dataset(name).get(), file_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), "written",
        name);
}

DatasetInfo File::info(const std::string& name) const {
  const auto dataset = open_dataset(name);
  const Handle<H5Tclose> type(check(H5Dget_type(dataset.get()), "read", name));
  const Handle<H5Sclose> space(check(H5Dget_space(dataset.get()), "read", name));
  const Handle<H5Pclose> creation(check(H5Dget_create_plist(dataset.get()), "read", name));
  DatasetInfo info;
  const auto known = known_type(type.get());
  require(known.has_value(), ExitCode::bad_input, "{}: {} has an element type that no shard has", path_, name);
  info.type = *known;
  require(H5Pget_layout(creation.get()) == H5D_CONTIGUOUS && H5Pget_external_count(creation.get()) == 0,
          ExitCode::bad_input, "{}: {} is not stored contiguously", path_, name);
  std::vector<hsize_t> extents(static_cast<std::size_t>(check(H5Sget_simple_extent_ndims(space.get()), "read", name)));
  check(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr), "read", name);
  info.bytes = type_bytes(info.type);
  for (const hsize_t extent : extents) {
    require(
        !__builtin_mul_overflow(info.bytes, extent, &info.bytes) && info.bytes <= static_cast<std::uint64_t>(INT64_MAX),
        ExitCode::bad_input, "{}: {} has an impossible shape", path_, name);
    info.shape.push_back(static_cast<std::int64_t>(extent));
  }
  const haddr_t offset = H5Dget_offset(dataset.get());
  if (offset != HADDR_UNDEF) info.offset = offset;
  H5Eclear2(H5E_DEFAULT);
  return info;
}

std::vector<std::byte> File::read(const std::string& name, std::uint64_t limit) const {
  const DatasetInfo dataset = info(name);
  require(dataset.bytes <= limit, ExitCode::bad_input, "{}: {} has {} bytes, at most {} are expected", path_, name,
          dataset.bytes, limit);
  require(dataset.offset || dataset.bytes == 0, ExitCode::bad_input,
          "{}: {} has no data: it was created but never written", path_, name);
  std::vector<std::byte> bytes(static_cast<std::size_t>(dataset.bytes));
  check(H5Dread(open_dataset(name).get(), file_type(dataset.type), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), "read",
        name);
  return bytes;
}

std::string File::read_text(const std::string& name, std::uint64_t limit) const {
  const auto bytes = read(name, limit);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void File::set_attribute(const std::string& object, const std::string& name, std::string_view text) {
  require(text.size() <= kMaxAttributeBytes, ExitCode::internal, "{}: attribute {} of {} bytes; use a dataset", path_,
          name, text.size());
  if (text.empty()) return;  // a text of fixed length 0 does not exist
  const Handle<H5Tclose> type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), text.size());
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const Handle<H5Sclose> space(H5Screate(H5S_SCALAR));
  const auto owner = open_object(object);
  const Handle<H5Aclose> attribute(
      check(H5Acreate2(owner.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), "created", name));
  check(H5Awrite(attribute.get(), type.get(), text.data()), "written", name);
}

void File::set_attribute(const std::string& object, const std::string& name, const std::vector<std::int64_t>& values) {
  const auto space = simple_space({static_cast<std::int64_t>(values.size())});
  const auto owner = open_object(object);
  const Handle<H5Aclose> attribute(check(
      H5Acreate2(owner.get(), name.c_str(), H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT), "created", name));
  check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, values.data()), "written", name);
}

std::optional<std::string> File::text_attribute(const std::string& object, const std::string& name) const {
  const auto owner = open_object(object);
  if (check(H5Aexists(owner.get(), name.c_str()), "read", name) == 0) return std::nullopt;
  const Handle<H5Aclose> attribute(check(H5Aopen(owner.get(), name.c_str(), H5P_DEFAULT), "opened", name));
  const Handle<H5Tclose> type(check(H5Aget_type(attribute.get()), "read", name));
  require(H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0, ExitCode::bad_input,
          "{}: attribute {} of {} is not a text of fixed length", path_, name, object);
  std::string text(H5Tget_size(type.get()), '\0');
  check(H5Aread(attribute.get(), type.get(), text.data()), "read", name);
  return text;
}

std::optional<std::vector<std::int64_t>> File::integers_attribute(const std::string& object,
                                                                  const std::string& name) const {
  const auto owner = open_object(object);
  if (check(H5Aexists(owner.get(), name.c_str()), "read", name) == 0) return std::nullopt;
  const Handle<H5Aclose> attribute(check(H5Aopen(owner.get(), name.c_str(), H5P_DEFAULT), "opened", name));
  const Handle<H5Tclose> type(check(H5Aget_type(attribute.get()), "read", name));
  const Handle<H5Sclose> space(check(H5Aget_space(attribute.get()), "read", name));
  require(H5Tget_class(type.get()) == H5T_INTEGER, ExitCode::bad_input, "{}: attribute {} of {} is not of integers",
          path_, name, object);
  std::vector<std::int64_t> values(
      static_cast<std::size_t>(check(H5Sget_simple_extent_npoints(space.get()), "read", name)));
  check(H5Aread(attribute.get(), H5T_NATIVE_INT64, values.data()), "read", name);
  return values;
}

}  // namespace bathys::io::h5
