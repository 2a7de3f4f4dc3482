// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint.hpp"

#include "core/error.hpp"
#include "core/json_sax.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

namespace bathys::io {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSuffix = ".safetensors";
constexpr int kMaxMetadataDepth = 64;

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// Reads {"metadata": .., "weight_map": {"tensor": "file", ..}}; total_size is the metadata's, when it is an integer.
class IndexReader final : public StrictSax {
 public:
  std::unordered_map<std::string, std::string> weight_map;
  std::optional<std::uint64_t> total_size;
  bool has_map = false;

  bool start_object(std::size_t /*n*/) override {
    if (level_ == 0) {
      level_ = 1;
      return true;
    }
    if (skip_depth_ > 0 || other_) return ++skip_depth_ <= kMaxMetadataDepth || refuse("nested too deep");
    if (level_ != 1) return refuse("an object");
    level_ = 2;
    return true;
  }
  bool end_object() override {
    if (skip_depth_ > 0) {
      --skip_depth_;
    } else {
      --level_;
    }
    return true;
  }
  bool start_array(std::size_t n) override { return other_ ? start_object(n) : refuse("a list"); }
  bool end_array() override { return end_object(); }
  bool key(string_t& name) override {
    key_ = name;
    if (skip_depth_ > 0) return true;
    if (level_ == 1) {
      if (!top_.insert(name).second) return refuse_as(fmt::format("the key {} stands twice", name));
      other_ = name != "weight_map";
      has_map = has_map || !other_;
      return true;
    }
    return weight_map.emplace(name, std::string()).second ||
           refuse_as(fmt::format("weight_map names tensor {} twice", name));
  }
  bool string(string_t& value) override {
    if (other_ && level_ >= 1) return true;
    if (level_ != 2) return refuse("a string");
    weight_map[key_] = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (other_ && key_ == "total_size") total_size = value;
    return (other_ && level_ >= 1) || refuse(fmt::format("the number {}", value));
  }
  bool null() override { return (other_ && level_ >= 1) || refuse("null"); }
  bool boolean(bool /*v*/) override { return (other_ && level_ >= 1) || refuse("a boolean"); }
  bool number_integer(number_integer_t v) override {
    return (other_ && level_ >= 1) || refuse(fmt::format("the number {}", v));
  }
  bool number_float(number_float_t v, const string_t& text) override {
    return (other_ && level_ >= 1) || StrictSax::number_float(v, text);
  }

 private:
  [[nodiscard]] std::string place() const override {
    if (level_ == 0) return "the index";
    return level_ == 2 ? fmt::format("weight_map: the file of tensor {}", key_) : key_;
  }

  std::set<std::string> top_;
  std::string key_;
  int level_ = 0;
  int skip_depth_ = 0;
  bool other_ = false;
};

// A text of the index for a message: quoted, control characters escaped.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A name that stays inside the folder whatever it is joined to.
bool is_plain_file_name(const std::string& name) {
  return name.size() > kSuffix.size() && std::string_view(name).ends_with(kSuffix) &&
         name.find('/') == std::string::npos && name.find('\\') == std::string::npos &&
         name.find('\0') == std::string::npos && name.front() != '.';
}

std::vector<std::string> safetensors_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (is_plain_file_name(name)) names.push_back(name);
  }
  require(!error, ExitCode::bad_input, "{}: cannot be read: {}", folder, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Checkpoint::Checkpoint(const std::string& folder) : folder_(folder) {
  std::error_code error;
  require(std::filesystem::is_directory(folder_, error), ExitCode::bad_input,
          "{}: no such folder; expected a checkpoint with config.json, tokenizer.json and safetensors files", folder_);
  const std::string index_path = folder_ + "/" + std::string(kIndexName);
  if (std::filesystem::exists(std::filesystem::symlink_status(index_path, error))) {
    open_by_index(index_path);
  } else {
    open_by_glob();
  }
}

void Checkpoint::add(std::unique_ptr<SafetensorsFile> file) {
  for (const TensorInfo& tensor : file->tensors()) {
    const auto [place, added] = tensors_.try_emplace(tensor.name, TensorPlace{file.get(), &tensor});
    require(added, ExitCode::bad_input, "{}: tensor {} stands in {} too; remove the file that does not belong",
            file->path(), tensor.name, place->second.file->path());
  }
  files_.push_back(std::move(file));
}

void Checkpoint::open_by_glob() {
  const std::vector<std::string> names = safetensors_names(folder_);
  require(!names.empty(), ExitCode::bad_input, "{}: holds no *.safetensors file", folder_);
  for (const std::string& name : names) add(std::make_unique<SafetensorsFile>(folder_ + "/" + name));
}

void Checkpoint::open_by_index(const std::string& index_path) {
  IndexReader index;
  const auto cause = index.run(read_checkpoint_text(index_path));
  require(!cause, ExitCode::bad_input, "{}: {}", index_path, cause.value_or(""));
  require(index.has_map && !index.weight_map.empty(), ExitCode::bad_input, "{}: has no weight_map", index_path);
  std::map<std::string, std::string> first_tensor;  // file -> one tensor of it, for messages
  for (const auto& [tensor, file] : index.weight_map) {
    require(is_plain_file_name(file), ExitCode::bad_input,
            "{}: tensor {} is said to be in {}, expected the plain name of a .safetensors file in this folder",
            index_path, tensor, quoted(file));
    first_tensor.emplace(file, tensor);
  }
  // All entries are known to be plain names before the first file is opened.
  for (const auto& [name, tensor] : first_tensor) add(std::make_unique<SafetensorsFile>(folder_ + "/" + name));
  std::uint64_t payload = 0;
  for (const auto& [name, place] : tensors_) {
    const auto listed = index.weight_map.find(name);
    require(listed != index.weight_map.end(), ExitCode::bad_input, "{}: holds tensor {}, which {} does not list",
            place.file->path(), name, index_path);
    require(listed->second == file_name(place.file->path()), ExitCode::bad_input, "{}: tensor {} is in {}, not in {}",
            index_path, name, file_name(place.file->path()), listed->second);
    payload += place.tensor->bytes;
  }
  for (const auto& [name, file] : index.weight_map) {
    require(tensors_.contains(name), ExitCode::bad_input, "{}: tensor {} is said to be in {}, which does not hold it",
            index_path, name, file);
  }
  if (index.total_size && *index.total_size != payload) {
    log::warn("convert",
              "file={} total_size={} payload_bytes={} note=\"the index's total_size is wrong; it is not used\"",
              index_path, *index.total_size, payload);
  }
  for (const std::string& name : safetensors_names(folder_)) {
    if (!first_tensor.contains(name)) {
      log::warn("convert", "file={}/{} note=\"ignored: the index does not list it\"", folder_, name);
    }
  }
}

std::string read_checkpoint_text(const std::string& path) {
  std::string text = read_small_file(path);
  const std::string what = describe_non_file(std::string_view(text).substr(0, 64), text.size());
  require(what.empty(), ExitCode::bad_input, "{} is {}", path, what);
  return text;
}

}  // namespace bathys::io
