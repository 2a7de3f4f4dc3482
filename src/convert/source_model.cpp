// SPDX-License-Identifier: Apache-2.0
#include "convert/source_model.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "io/hash.hpp"
#include "tokenizer/token_map.hpp"
#include "tokenizer/tokenizer.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace bathys::convert {
namespace {

constexpr ExitCode kCode = ExitCode::bad_input;

std::vector<std::string_view> split(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t dot = name.find('.', begin);
    parts.push_back(name.substr(begin, dot - begin));
    if (dot == std::string_view::npos) return parts;
    begin = dot + 1;
  }
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The shape of one member of a dataset: without the axis along which a layer's experts are stacked.
std::span<const std::int64_t> member_shape(const catalog::DatasetSpec& dataset) {
  return std::span(dataset.shape).subspan(dataset.stacked() ? 1 : 0);
}

void check_tensor(const catalog::DatasetSpec& dataset, const std::string& name, const io::TensorPlace& place) {
  const auto shape = member_shape(dataset);
  const std::string_view dtype = catalog::safetensors_dtype(dataset.dtype);
  const io::TensorInfo& found = *place.tensor;
  require(found.dtype == dtype && std::equal(shape.begin(), shape.end(), found.shape.begin(), found.shape.end()), kCode,
          "{}: tensor {} is {} {}, the config wants {} {}", place.file->path(), name, found.dtype,
          io::shape_text(found.shape), dtype, io::shape_text(shape));
}

// Reads the tokenizer and, for a model with Engram, derives the map by which it looks up n-grams.
std::vector<std::int32_t> map_tokens(const config::ModelConfig& config, const std::string& tokenizer_json,
                                     const std::string& path) {
  const auto tokenizer = tokenizer::Tokenizer::from_json(tokenizer_json, path, config.vocab_size);
  if (!config.engram_enabled()) return {};
  auto map = tokenizer::compressed_token_map(tokenizer);
  require(map.n_classes == config.engram_compressed_vocab_size, kCode,
          "{}: its {} tokens fall into {} classes, config.json has engram_compressed_vocab_size {}: they do not belong "
          "together",
          path, config.vocab_size, map.n_classes, config.engram_compressed_vocab_size);
  return std::move(map.class_of);
}

// tokenizer_config.json may be absent.
SourceModel::Texts read_texts(const std::string& folder) {
  SourceModel::Texts texts;
  texts.config_name = folder + "/config.json";
  std::error_code found;
  require(!std::filesystem::exists(folder + "/" + std::string(io::kIndexFileName), found) ||
              std::filesystem::exists(texts.config_name, found),
          kCode, "{}: holds converted shards, not a checkpoint; --to safetensors makes a checkpoint of them", folder);
  texts.config = io::read_checkpoint_text(texts.config_name);
  texts.tokenizer_name = folder + "/tokenizer.json";
  texts.tokenizer = io::read_checkpoint_text(texts.tokenizer_name);
  std::error_code error;
  const std::string path = folder + "/tokenizer_config.json";
  if (std::filesystem::exists(path, error)) texts.tokenizer_config = io::read_checkpoint_text(path);
  return texts;
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

}  // namespace

std::optional<std::string> canonical_tensor_name(std::string_view name) {
  std::vector<std::string_view> parts = split(name);
  if (parts.size() > 1 && parts.front() == "model") parts.erase(parts.begin());
  const bool vision = parts.front() == "vision";
  for (std::string_view& part : parts) {
    if (part == "self_attn") part = "attn";
    if (part == "mlp" && !vision) part = "ffn";
    if (part == "weight_scale_inv") part = "scale";
    if (part == "e_score_correction_bias") part = "bias";
  }
  const bool own_copy = parts.size() == 4 && parts[0] == "mtp" && is_number(parts[1]) &&
                        (parts[2] == "embed" || parts[2] == "head") && parts[3] == "weight";
  if (own_copy) return std::nullopt;
  std::string joined;
  for (const std::string_view part : parts) {
    if (!joined.empty()) joined += '.';
    joined += part;
  }
  return joined;
}

SourceModel::SourceModel(Texts texts)
    : config(config::read_model_config(texts.config, texts.config_name)),
      table(catalog::dataset_table(config)),
      index([&] {
        io::ShardIndex made;
        made.config_json = std::move(texts.config);
        made.tokenizer_json = std::move(texts.tokenizer);
        made.tokenizer_config_json = std::move(texts.tokenizer_config);
        // Before any weight file is opened: what the tokenizer alone can get wrong.
        made.compressed_token_map = map_tokens(config, made.tokenizer_json, texts.tokenizer_name);
        return made;
      }()) {}

SourceModel::SourceModel(const std::string& folder) : SourceModel(read_texts(folder)) {
  checkpoint.emplace(folder);
  match_tensors();
  set_identity();
}

SourceModel::SourceModel(Texts texts, std::uint64_t seed) : SourceModel(std::move(texts)) {
  synthetic.emplace(config, seed);
  set_identity();
}

std::int64_t SourceModel::n_tensors() const {
  std::int64_t n = 0;
  for (const catalog::DatasetSpec& dataset : table) n += static_cast<std::int64_t>(dataset.tensors.size());
  return n;
}

void SourceModel::match_tensors() {
  std::map<std::string, io::TensorPlace> found;  // ordered, so that messages do not depend on hashing
  for (const auto& file : checkpoint->files()) {
    for (const io::TensorInfo& tensor : file->tensors()) {
      auto name = canonical_tensor_name(tensor.name);
      if (!name) {
        log::info("convert", "tensor={} note=\"dropped: draft stages use the backbone's\"", tensor.name);
        continue;
      }
      const auto [place, added] = found.try_emplace(std::move(*name), io::TensorPlace{file.get(), &tensor});
      require(added, kCode, "{}: tensor {} stands for {}, as does {} in {}", file->path(), tensor.name, place->first,
              place->second.tensor->name, place->second.file->path());
    }
  }
  places.reserve(table.size());
  for (const catalog::DatasetSpec& dataset : table) {
    std::vector<io::TensorPlace>& members = places.emplace_back();
    members.reserve(dataset.tensors.size());
    for (const std::string& name : dataset.tensors) {
      const auto place = found.find(name);
      require(place != found.end(), kCode, "{}: tensor {} is missing; the config wants it as {} {}",
              checkpoint->folder(), name, catalog::safetensors_dtype(dataset.dtype),
              io::shape_text(member_shape(dataset)));
      check_tensor(dataset, name, place->second);
      members.push_back(place->second);
      found.erase(place);
    }
  }
  require(found.empty(), kCode, "{}: tensor {} is unknown: the config has no place for it ({} such tensors)",
          found.empty() ? std::string() : found.begin()->second.file->path(),
          found.empty() ? std::string() : found.begin()->first, found.size());
}

void SourceModel::set_identity() {
  const auto add_text = [&](const std::string& file, const std::string& text) {
    if (!text.empty()) index.sources.push_back({file, text.size(), io::sha256_hex(text)});
  };
  add_text("config.json", index.config_json);
  add_text("tokenizer.json", index.tokenizer_json);
  add_text("tokenizer_config.json", index.tokenizer_config_json);
  if (checkpoint) {
    for (const auto& file : checkpoint->files())
      index.sources.push_back({file_name(file->path()), file->file().size(), file->header_sha256()});
  } else {
    std::uint64_t bytes = 0;
    for (const catalog::DatasetSpec& dataset : table) bytes += static_cast<std::uint64_t>(dataset.bytes());
    const std::string name = fmt::format("synthetic version={} seed={}", catalog::kSyntheticVersion, synthetic->seed());
    index.sources.push_back({name, bytes, io::sha256_hex(name)});
  }
  io::Sha256 hash;
  hash.update(fmt::format("{} {}\n", io::kShardFormat, io::kShardFormatVersion));
  for (const io::ShardSource& source : index.sources) {
    hash.update(fmt::format("{} {} {}\n", source.file, source.bytes, source.sha256));
  }
  index.model_id = hash.hex();
}

DatasetSource::DatasetSource(const SourceModel& source, std::size_t dataset)
    : source_(&source),
      dataset_(dataset),
      member_bytes_(static_cast<std::uint64_t>(source.table[dataset].member_bytes())),
      bytes_(static_cast<std::uint64_t>(source.table[dataset].bytes())) {}

void DatasetSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const std::uint64_t within = offset % member_bytes_;
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), member_bytes_ - within));
    read_member(static_cast<std::size_t>(offset / member_bytes_), within, out.first(count));
    out = out.subspan(count);
    offset += count;
  }
}

void DatasetSource::will_need(std::uint64_t offset, std::uint64_t bytes) const {
  if (source_->synthetic) return;
  while (bytes > 0) {
    const std::uint64_t within = offset % member_bytes_;
    const std::uint64_t count = std::min(bytes, member_bytes_ - within);
    const io::TensorPlace& place = source_->places[dataset_][static_cast<std::size_t>(offset / member_bytes_)];
    place.file->file().will_need(place.tensor->offset + within, count);
    offset += count;
    bytes -= count;
  }
}

void DatasetSource::read_member(std::size_t member, std::uint64_t offset, std::span<std::byte> out) const {
  if (source_->synthetic) {
    source_->synthetic->read(source_->table[dataset_].tensors[member], offset, out);
  } else {
    const io::TensorPlace& place = source_->places[dataset_][member];
    place.file->file().read_at(place.tensor->offset + offset, out);
  }
}

}  // namespace bathys::convert
