// SPDX-License-Identifier: Apache-2.0
#include "io/shard_index.hpp"

#include "core/error.hpp"
#include "core/json.hpp"
#include "io/atomic_file.hpp"
#include "io/safetensors.hpp"

#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include <unistd.h>

namespace bathys::io {
namespace {

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;
constexpr const char* kIndex = "index";
constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kTokenMap = "compressed_token_map";

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::span<const std::byte> bytes_of(const std::vector<std::int32_t>& values) {
  return std::as_bytes(std::span(values));
}

void write_part(h5::File& file, const std::string& name, h5::Type type, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  file.create_dataset(name, type, {static_cast<std::int64_t>(bytes.size() / h5::type_bytes(type))});
  file.set_attribute(name, "sha256", sha256_hex(bytes));
  file.write(name, type, bytes);
}

std::string read_part(const h5::File& file, const std::string& name, h5::Type type, bool needed) {
  if (!needed && !file.has(name)) return {};
  require(file.info(name).type == type, ExitCode::bad_input, "{}: {} has another element type than a shard index",
          file.path(), name);
  std::string text = file.read_text(name, kMaxTextBytes);
  const std::string found = sha256_hex(text);
  const std::string expected = file.text_attribute(name, "sha256").value_or("nothing");
  require(found == expected, ExitCode::bad_input, "{}: {} has SHA-256 {}, expected {}: the file is damaged",
          file.path(), name, found, expected);
  return text;
}

// The inverse of to_json.
ShardIndex parse_index(std::string_view text) {
  constexpr ExitCode kCode = ExitCode::bad_input;
  const Json json = parse_json(text, kIndexFileName, kCode);
  JsonObject root(json, std::string(kIndexFileName), kCode);
  ShardIndex index;
  const std::string format = root.string("format");
  const std::int64_t version = root.integer("format_version");
  require(format == kIndexFormat && version == kShardFormatVersion, kCode,
          "{}: has format {} version {}, this program reads {} version {}", kIndexFileName, format, version,
          kIndexFormat, kShardFormatVersion);
  index.model_id = root.string("model_id");
  const std::int64_t piece_bytes = root.integer("piece_bytes");
  require(piece_bytes == static_cast<std::int64_t>(kPieceBytes), kCode, "{}: piece_bytes is {}, expected {}",
          kIndexFileName, piece_bytes, kPieceBytes);
  for (const Json& element : root.any("sources")) {
    JsonObject source(element, "index.h5: sources", kCode);
    index.sources.push_back(
        {source.string("file"), static_cast<std::uint64_t>(source.integer("bytes")), source.string("sha256")});
    source.finish();
  }
  for (const Json& element : root.any("files")) {
    JsonObject file(element, "index.h5: files", kCode);
    index.file_bytes.emplace(file.string("file"), static_cast<std::uint64_t>(file.integer("bytes")));
    file.finish();
  }
  for (const Json& element : root.any("datasets")) {
    JsonObject dataset(element, "index.h5: datasets", kCode);
    index.datasets.push_back({dataset.string("name"), dataset.string("file"), dataset.string("dtype"),
                              dataset.integers("shape"), static_cast<std::uint64_t>(dataset.integer("offset")),
                              static_cast<std::uint64_t>(dataset.integer("bytes")), dataset.string("pieces_xxh3")});
    dataset.finish();
  }
  root.finish();
  return index;
}

void append_block(std::vector<std::byte>& out, std::span<const std::byte> block) {
  const std::uint64_t size = block.size();
  const auto length = std::as_bytes(std::span(&size, 1));
  out.insert(out.end(), length.begin(), length.end());
  out.insert(out.end(), block.begin(), block.end());
}

std::string take_block(std::span<const std::byte>& rest) {
  std::uint64_t size = 0;
  require(rest.size() >= sizeof size, ExitCode::bad_input, "the shard index was cut on its way to this rank");
  std::memcpy(&size, rest.data(), sizeof size);
  rest = rest.subspan(sizeof size);
  require(rest.size() >= size, ExitCode::bad_input, "the shard index was cut on its way to this rank");
  std::string block(reinterpret_cast<const char*>(rest.data()), static_cast<std::size_t>(size));
  rest = rest.subspan(static_cast<std::size_t>(size));
  return block;
}

void set_token_map(ShardIndex& index, std::string_view bytes) {
  index.compressed_token_map.resize(bytes.size() / sizeof(std::int32_t));
  if (!bytes.empty()) {
    std::memcpy(index.compressed_token_map.data(), bytes.data(),
                index.compressed_token_map.size() * sizeof(std::int32_t));
  }
}

}  // namespace

h5::Type stored_type(std::string_view dtype) {
  if (dtype == "BF16") return h5::Type::u16;
  if (dtype == "F32") return h5::Type::f32;
  return h5::Type::u8;
}

std::string ShardIndex::to_json() const {
  Json root;
  root["format"] = kIndexFormat;
  root["format_version"] = kShardFormatVersion;
  root["model_id"] = model_id;
  root["piece_bytes"] = kPieceBytes;
  root["sources"] = Json::array();
  for (const ShardSource& source : sources) {
    root["sources"].push_back({{"file", source.file}, {"bytes", source.bytes}, {"sha256", source.sha256}});
  }
  root["files"] = Json::array();
  for (const auto& [file, bytes] : std::map<std::string, std::uint64_t>(file_bytes.begin(), file_bytes.end())) {
    root["files"].push_back({{"file", file}, {"bytes", bytes}});
  }
  root["datasets"] = Json::array();
  for (const ShardDataset& d : datasets) {
    root["datasets"].push_back({{"name", d.name},
                                {"file", d.file},
                                {"dtype", d.dtype},
                                {"shape", d.shape},
                                {"offset", d.offset},
                                {"bytes", d.bytes},
                                {"pieces_xxh3", d.pieces_xxh3}});
  }
  return root.dump() + "\n";
}

std::string ShardIndex::content_id() const {
  Sha256 hash;
  for (const std::string* text : {&config_json, &tokenizer_json, &tokenizer_config_json}) {
    hash.update(fmt::format("{}\n", text->size()));
    hash.update(*text);
  }
  for (const ShardDataset& d : datasets)
    hash.update(fmt::format("{} {} {} {}\n", d.name, d.dtype, shape_text(d.shape), d.pieces_xxh3));
  return hash.hex();
}

std::vector<std::byte> ShardIndex::to_bytes() const {
  std::vector<std::byte> out;
  append_block(out, bytes_of(to_json()));
  append_block(out, bytes_of(config_json));
  append_block(out, bytes_of(tokenizer_json));
  append_block(out, bytes_of(tokenizer_config_json));
  append_block(out, bytes_of(compressed_token_map));
  return out;
}

ShardIndex ShardIndex::from_bytes(std::span<const std::byte> bytes) {
  ShardIndex index = parse_index(take_block(bytes));
  index.config_json = take_block(bytes);
  index.tokenizer_json = take_block(bytes);
  index.tokenizer_config_json = take_block(bytes);
  set_token_map(index, take_block(bytes));
  return index;
}

void require_datasets(const ShardIndex& index, std::span<const ShardDataset> expected, const std::string& folder) {
  const std::string path = folder + "/" + std::string(kIndexFileName);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const ShardDataset& wanted = expected[i];
    require(i < index.datasets.size(), ExitCode::bad_input,
            "{}: lacks {}, which its config wants; rerun bathys convert", path, wanted.name);
    const ShardDataset& found = index.datasets[i];
    require(found.name == wanted.name && found.file == wanted.file && found.dtype == wanted.dtype &&
                found.shape == wanted.shape && found.bytes == wanted.bytes,
            ExitCode::bad_input, "{}: has {} {} {} in {}, its config wants {} {} {} in {}; rerun bathys convert", path,
            found.name, found.dtype, shape_text(found.shape), found.file, wanted.name, wanted.dtype,
            shape_text(wanted.shape), wanted.file);
  }
  require(index.datasets.size() == expected.size(), ExitCode::bad_input,
          "{}: has {} datasets, its config wants {}; rerun bathys convert", path, index.datasets.size(),
          expected.size());
}

void write_shard_index(const std::string& folder, const ShardIndex& index) {
  const std::string path = folder + "/" + std::string(kIndexFileName);
  const std::string partial = partial_name(path);
  try {
    h5::File file = h5::File::create(partial, {1, 64});
    file.set_attribute("/", "format", kIndexFormat);
    file.set_attribute("/", "format_version", std::vector<std::int64_t>{kShardFormatVersion});
    file.set_attribute("/", "model_id", index.model_id);
    write_part(file, kIndex, h5::Type::u8, bytes_of(index.to_json()));
    write_part(file, kConfig, h5::Type::u8, bytes_of(index.config_json));
    write_part(file, kTokenizer, h5::Type::u8, bytes_of(index.tokenizer_json));
    write_part(file, kTokenizerConfig, h5::Type::u8, bytes_of(index.tokenizer_config_json));
    write_part(file, kTokenMap, h5::Type::i32, bytes_of(index.compressed_token_map));
    file.close();
    publish(partial, path);
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
}

namespace {

ShardIndex read_index_file(const std::string& path) {
  const h5::File file = h5::File::open(path, h5::Mode::read);
  const std::uint64_t size = ReadFile(path).size();
  require(size == file.allocated_bytes(), ExitCode::bad_input, "{}: has {} bytes, expected {}: the file was changed",
          path, size, file.allocated_bytes());
  const auto version = file.integers_attribute("/", "format_version").value_or(std::vector<std::int64_t>{});
  require(
      file.text_attribute("/", "format") == kIndexFormat && version == std::vector<std::int64_t>{kShardFormatVersion},
      ExitCode::bad_input, "{}: is not a {} of version {}", path, kIndexFormat, kShardFormatVersion);
  ShardIndex index = parse_index(read_part(file, kIndex, h5::Type::u8, true));
  require(file.text_attribute("/", "model_id") == index.model_id, ExitCode::bad_input,
          "{}: its model_id differs from its index", path);
  index.config_json = read_part(file, kConfig, h5::Type::u8, true);
  index.tokenizer_json = read_part(file, kTokenizer, h5::Type::u8, true);
  index.tokenizer_config_json = read_part(file, kTokenizerConfig, h5::Type::u8, false);
  set_token_map(index, read_part(file, kTokenMap, h5::Type::i32, false));
  return index;
}

}  // namespace

ShardIndex read_shard_index(const std::string& folder) {
  const std::string path = folder + "/" + std::string(kIndexFileName);
  std::error_code error;
  require(
      std::filesystem::exists(path, error), ExitCode::bad_input,
      "{}: has no {}, which bathys convert writes last; expected a folder of converted shards (rerun bathys convert)",
      folder, kIndexFileName);
  try {
    return read_index_file(path);
  } catch (const Error& cause) {  // whatever it is, one thing helps
    fail(cause.code(), "{}; rerun bathys convert", cause.what());
  }
}

}  // namespace bathys::io
