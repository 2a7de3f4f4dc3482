// SPDX-License-Identifier: Apache-2.0
#include "convert/verify.hpp"

#include "catalog/dataset_table.hpp"
#include "config/model_config.hpp"
#include "convert/shard_writer.hpp"
#include "convert/source_model.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "io/shard_file.hpp"
#include "tokenizer/token_map.hpp"
#include "tokenizer/tokenizer.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

namespace bathys::convert {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

void check_token_map(const io::ShardIndex& index, const config::ModelConfig& config, const std::string& folder) {
  const std::string name = folder + "/index.h5: tokenizer.json";
  const auto tokenizer = tokenizer::Tokenizer::from_json(index.tokenizer_json, name, config.vocab_size);
  const auto expected =
      config.engram_enabled() ? tokenizer::compressed_token_map(tokenizer).class_of : std::vector<std::int32_t>{};
  require(index.compressed_token_map == expected, ExitCode::bad_input,
          "{}: the compressed token map stored beside it is not its own; rerun bathys convert", name);
}

class Verification {
 public:
  Verification(const std::string& folder, const VerifyOptions& options)
      : folder_(folder), options_(options), index_(io::read_shard_index(folder)) {
    const auto config = config::read_model_config(index_.config_json, folder_ + "/index.h5: config.json");
    table_ = catalog::dataset_table(config);
    check_token_map(index_, config, folder_);
    std::vector<io::ShardDataset> expected;
    expected.reserve(table_.size());
    for (const catalog::DatasetSpec& spec : table_) expected.push_back(describe(spec));
    io::require_datasets(index_, expected, folder_);
    if (options_.checkpoint.empty()) return;
    source_.emplace(options_.checkpoint);
    require(source_->index.model_id == index_.model_id, ExitCode::bad_input,
            "{}: was not converted from {} (model {}, not {})", folder_, options_.checkpoint, index_.model_id,
            source_->index.model_id);
  }

  VerifyReport run() {
    std::unique_ptr<io::ShardFile> shard;
    for (std::size_t i = 0; i < table_.size(); ++i) {
      const io::ShardDataset& dataset = index_.datasets[i];
      if (i == 0 || dataset.file != index_.datasets[i - 1].file) {
        shard = std::make_unique<io::ShardFile>(index_, folder_, dataset.file, options_.checksums);
        ++report_.files;
      }
      ++report_.datasets;
      report_.bytes += dataset.bytes;
      if (options_.checksums || source_) read_dataset(*shard, dataset, i);
    }
    report_.seconds = timer_.seconds();
    return report_;
  }

 private:
  void read_dataset(const io::ShardFile& shard, const io::ShardDataset& dataset, std::size_t number) {
    for (std::uint64_t piece = 0; piece < io::piece_count(dataset.bytes); ++piece) {
      const auto bytes = buffer_.first(io::ShardFile::piece_bytes(dataset, piece));
      shard.read_piece(dataset, piece, bytes);
      if (source_) compare(shard, number, piece * io::kPieceBytes, bytes);
      report_.bytes_read += bytes.size();
      if (since_line_.seconds() < options_.progress_s) continue;
      since_line_.restart();
      log::info("verify", "file={} read_gib={:.2f} rate_gib_s={:.2f}", dataset.file,
                static_cast<double>(report_.bytes_read) / kGib,
                static_cast<double>(report_.bytes_read) / kGib / timer_.seconds());
    }
  }

  void compare(const io::ShardFile& shard, std::size_t number, std::uint64_t offset, std::span<const std::byte> bytes) {
    if (source_bytes_.size() == 0) source_bytes_ = io::Buffer(io::kPieceBytes);
    const auto expected = source_bytes_.first(bytes.size());
    DatasetSource(*source_, number).read(offset, expected);
    const auto [found, wanted] = std::mismatch(bytes.begin(), bytes.end(), expected.begin());
    require(found == bytes.end(), ExitCode::bad_input, "{}: {}: byte {} of the dataset differs from the checkpoint",
            shard.data().path(), table_[number].name, offset + static_cast<std::uint64_t>(found - bytes.begin()));
  }

  std::string folder_;
  VerifyOptions options_;
  io::ShardIndex index_;
  std::vector<catalog::DatasetSpec> table_;
  std::optional<SourceModel> source_;
  io::Buffer buffer_{io::kPieceBytes};
  io::Buffer source_bytes_;
  VerifyReport report_;
  Timer timer_;
  Timer since_line_;
};

}  // namespace

VerifyReport verify(const std::string& shard_folder, const VerifyOptions& options) {
  return Verification(shard_folder, options).run();
}

}  // namespace bathys::convert
