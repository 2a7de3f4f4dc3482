// SPDX-License-Identifier: Apache-2.0
#include "convert/export.hpp"

#include "catalog/dataset_table.hpp"
#include "convert/shard_writer.hpp"
#include "core/json.hpp"
#include "io/shard_file.hpp"
#include "parallel/agree.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bathys::convert {
namespace {

// The tensors of a checkpoint, out of the datasets of shards.
class ShardTensors {
 public:
  explicit ShardTensors(const std::string& folder)
      : folder_(folder),
        index_(io::read_shard_index(folder)),
        config_(config::read_model_config(index_.config_json, folder + "/index.h5: config.json")),
        table_(catalog::dataset_table(config_)) {
    std::vector<io::ShardDataset> expected;
    for (std::size_t i = 0; i < table_.size(); ++i) {
      expected.push_back(describe(table_[i]));
      for (std::size_t member = 0; member < table_[i].tensors.size(); ++member)
        places_.emplace(table_[i].tensors[member], Place{i, member});
    }
    io::require_datasets(index_, expected, folder_);
  }

  [[nodiscard]] const io::ShardIndex& index() const { return index_; }
  [[nodiscard]] const config::ModelConfig& config() const { return config_; }

  void read(const std::string& tensor, std::uint64_t offset, std::span<std::byte> out) {
    const Place& place = places_.at(tensor);
    std::uint64_t at = place.member * static_cast<std::uint64_t>(table_[place.dataset].member_bytes()) + offset;
    while (!out.empty()) {
      const std::span<const std::byte> piece = piece_of(place.dataset, at / io::kPieceBytes);
      const auto begin = static_cast<std::size_t>(at % io::kPieceBytes);
      const std::size_t count = std::min(out.size(), piece.size() - begin);
      std::memcpy(out.data(), piece.data() + begin, count);
      out = out.subspan(count);
      at += count;
    }
  }

 private:
  struct Place {
    std::size_t dataset = 0;
    std::uint64_t member = 0;
  };
  struct Piece {
    std::size_t dataset = 0;
    std::uint64_t number = 0;
    io::Buffer buffer;
    std::size_t bytes = 0;
  };

  // The experts of a layer alternate between the stacks of their matrices and scales: the pieces in use stay.
  std::span<const std::byte> piece_of(std::size_t dataset, std::uint64_t number) {
    const auto found = std::find_if(recent_.begin(), recent_.end(), [&](const Piece& piece) {
      return piece.dataset == dataset && piece.number == number;
    });
    if (found != recent_.end()) {
      recent_.splice(recent_.begin(), recent_, found);
    } else {
      load(dataset, number);
    }
    return recent_.front().buffer.first(recent_.front().bytes);
  }

  void load(std::size_t dataset, std::uint64_t number) {
    Piece piece;
    if (recent_.size() == kRecent) {
      piece = std::move(recent_.back());
      recent_.pop_back();
    } else {
      piece.buffer = io::Buffer(io::kPieceBytes);
    }
    const io::ShardDataset& described = index_.datasets[dataset];
    auto& shard = shards_[described.file];
    if (!shard) shard = std::make_unique<io::ShardFile>(index_, folder_, described.file, true);
    piece.dataset = dataset;
    piece.number = number;
    piece.bytes = io::ShardFile::piece_bytes(described, number);
    shard->read_piece(described, number, piece.buffer.first(piece.bytes));
    recent_.push_front(std::move(piece));
  }

  static constexpr std::size_t kRecent = 8;  // three matrices with their scales, and two

  std::string folder_;
  io::ShardIndex index_;
  config::ModelConfig config_;
  std::vector<catalog::DatasetSpec> table_;
  std::unordered_map<std::string, Place> places_;
  std::unordered_map<std::string, std::unique_ptr<io::ShardFile>> shards_;
  std::list<Piece> recent_;
};

}  // namespace

ReleaseReport export_checkpoint(parallel::Collectives& world, const std::string& shard_folder,
                                const std::string& checkpoint_folder, const ReleaseOptions& options) {
  ShardTensors tensors = parallel::agree(world, [&] { return ShardTensors(shard_folder); });
  Json mark;
  mark["model_id"] = tensors.index().model_id;
  mark["content_id"] = tensors.index().content_id();
  ReleaseSource source;
  source.config = tensors.config();
  source.texts = &tensors.index();
  source.read = [&](const catalog::TensorSpec& spec, std::uint64_t offset, std::span<std::byte> out) {
    tensors.read(spec.name, offset, out);
  };
  source.mark_name = "exported.json";
  source.mark_text = mark.dump(1) + "\n";
  return write_release(world, source, checkpoint_folder, options);
}

}  // namespace bathys::convert
