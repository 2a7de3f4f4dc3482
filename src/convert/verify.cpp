// SPDX-License-Identifier: Apache-2.0
#include "convert/verify.hpp"

#include "catalog/dataset_table.hpp"
#include "config/model_config.hpp"
#include "convert/shard_writer.hpp"
#include "convert/source_model.hpp"
#include "convert/team.hpp"
#include "core/error.hpp"
#include "core/timer.hpp"
#include "io/read_ahead.hpp"
#include "io/shard_file.hpp"
#include "parallel/agree.hpp"
#include "tokenizer/token_map.hpp"
#include "tokenizer/tokenizer.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bathys::convert {
namespace {

void check_token_map(const io::ShardIndex& index, const config::ModelConfig& config, const std::string& folder) {
  const std::string name = folder + "/index.h5: tokenizer.json";
  const auto tokenizer = tokenizer::Tokenizer::from_json(index.tokenizer_json, name, config.vocab_size);
  const auto expected =
      config.engram_enabled() ? tokenizer::compressed_token_map(tokenizer).class_of : std::vector<std::int32_t>{};
  require(index.compressed_token_map == expected, ExitCode::bad_input,
          "{}: the compressed token map stored beside it is not its own; rerun bathys convert", name);
}

// One rank's part of a verification.
class Verification {
 public:
  Verification(parallel::Collectives& world, const std::string& folder, const VerifyOptions& options)
      : world_(world), folder_(folder), options_(options) {
    parallel::agree(world_, [&] { read_index(); });
  }

  VerifyReport run() {
    check_files();
    if (options_.checksums || source_) check_pieces();
    report_.seconds = timer_.seconds();
    return report_;
  }

 private:
  struct Piece {
    std::size_t dataset = 0;  // position in the table
    std::uint64_t number = 0;
  };
  struct Slot {
    io::Buffer shard;
    io::Buffer source;
    std::uint64_t bytes = 0;
  };

  void read_index() {
    index_ = io::read_shard_index(folder_);
    const auto config = config::read_model_config(index_.config_json, folder_ + "/index.h5: config.json");
    table_ = catalog::dataset_table(config);
    check_token_map(index_, config, folder_);
    std::vector<io::ShardDataset> expected;
    expected.reserve(table_.size());
    for (const catalog::DatasetSpec& spec : table_) expected.push_back(describe(spec));
    io::require_datasets(index_, expected, folder_);
    for (const io::ShardDataset& dataset : index_.datasets) {
      if (files_.empty() || files_.back() != dataset.file) files_.push_back(dataset.file);
      report_.bytes += dataset.bytes;
    }
    report_.files = static_cast<std::int64_t>(files_.size());
    report_.datasets = static_cast<std::int64_t>(table_.size());
    if (options_.checkpoint.empty()) return;
    source_.emplace(options_.checkpoint);
    require(source_->index.model_id == index_.model_id, ExitCode::bad_input,
            "{}: was not converted from {} (model {}, not {})", folder_, options_.checkpoint, index_.model_id,
            source_->index.model_id);
  }

  // The least fault is found by the lowest rank: parts are contiguous.
  [[nodiscard]] TeamOptions team(std::uint64_t total_bytes) const {
    TeamOptions team;
    team.event = "verify";
    team.progress_s = options_.progress_s;
    team.total_bytes = total_bytes;
    team.alive = options_.alive;
    team.report_first_rank = true;
    return team;
  }

  void check_files() {
    const catalog::Range mine =
        catalog::shard_range(static_cast<std::int64_t>(files_.size()), world_.size(), world_.rank());
    std::int64_t next = mine.begin;
    const auto step = [&]() -> std::optional<std::uint64_t> {
      if (next == mine.end) return std::nullopt;
      const io::ShardFile shard(index_, folder_, files_[static_cast<std::size_t>(next++)], options_.checksums);
      return 0;
    };
    require_not_stopped(work_together(world_, team(0), step).stopped);
  }

  // The pieces of which most bytes lie in this rank's share of the payload, in table order.
  [[nodiscard]] std::vector<Piece> my_pieces() const {
    const catalog::Range mine =
        catalog::shard_range(static_cast<std::int64_t>(report_.bytes), world_.size(), world_.rank());
    std::vector<Piece> pieces;
    std::int64_t at = 0;
    for (std::size_t i = 0; i < table_.size(); ++i) {
      for (std::uint64_t number = 0; number < io::piece_count(index_.datasets[i].bytes); ++number) {
        const auto bytes = static_cast<std::int64_t>(io::ShardFile::piece_bytes(index_.datasets[i], number));
        if (at + bytes / 2 >= mine.begin && at + bytes / 2 < mine.end) pieces.push_back({i, number});
        at += bytes;
      }
    }
    return pieces;
  }

  void check_pieces() {
    const std::vector<Piece> pieces = my_pieces();
    std::unordered_map<std::string, std::unique_ptr<io::ShardFile>> shards;  // opened by HDF5, so in this thread
    parallel::agree(world_, [&] {
      for (const Piece& piece : pieces) {
        auto& shard = shards[table_[piece.dataset].file];
        if (!shard) {
          shard = std::make_unique<io::ShardFile>(index_, folder_, table_[piece.dataset].file, options_.checksums);
        }
      }
    });
    std::vector<Slot> slots(kSlots);
    const auto shard_of = [&](const Piece& piece) -> const io::ShardFile& {
      return *shards.at(table_[piece.dataset].file);
    };
    const auto will_need = [&](std::size_t job) {
      shard_of(pieces[job]).will_need(index_.datasets[pieces[job].dataset], pieces[job].number);
    };
    const auto check = [&](std::size_t job, Slot& slot) { check_piece(shard_of(pieces[job]), pieces[job], slot); };
    io::ReadAhead<Slot> ahead(pieces.size(), std::move(slots), check, will_need);
    std::size_t next = 0;
    const auto step = [&]() -> std::optional<std::uint64_t> {
      if (next++ == pieces.size()) return std::nullopt;
      const std::uint64_t bytes = ahead.take().bytes;
      ahead.release();
      return bytes;
    };
    const TeamReport done = work_together(world_, team(report_.bytes), step);
    require_not_stopped(done.stopped);
    report_.bytes_read = done.bytes;
  }

  void check_piece(const io::ShardFile& shard, const Piece& piece, Slot& slot) const {
    if (slot.shard.size() == 0) slot.shard = io::Buffer(io::kPieceBytes);
    const io::ShardDataset& dataset = index_.datasets[piece.dataset];
    const auto found = slot.shard.first(io::ShardFile::piece_bytes(dataset, piece.number));
    shard.read_piece(dataset, piece.number, found);
    slot.bytes = found.size();
    if (!source_) return;
    if (slot.source.size() == 0) slot.source = io::Buffer(io::kPieceBytes);
    const auto wanted = slot.source.first(found.size());
    const std::uint64_t offset = piece.number * io::kPieceBytes;
    DatasetSource(*source_, piece.dataset).read(offset, wanted);
    const auto [differs, other] = std::mismatch(found.begin(), found.end(), wanted.begin());
    require(differs == found.end(), ExitCode::bad_input, "{}: {}: byte {} of the dataset differs from the checkpoint",
            shard.data().path(), dataset.name, offset + static_cast<std::uint64_t>(differs - found.begin()));
  }

  static constexpr std::size_t kSlots = 3;

  parallel::Collectives& world_;
  std::string folder_;
  VerifyOptions options_;
  io::ShardIndex index_;
  std::vector<catalog::DatasetSpec> table_;
  std::vector<std::string> files_;
  std::optional<SourceModel> source_;
  VerifyReport report_;
  Timer timer_;
};

}  // namespace

VerifyReport verify(parallel::Collectives& world, const std::string& shard_folder, const VerifyOptions& options) {
  return Verification(world, shard_folder, options).run();
}

VerifyReport verify(const std::string& shard_folder, const VerifyOptions& options) {
  return verify(*parallel::make_single_collectives(), shard_folder, options);
}

}  // namespace bathys::convert
