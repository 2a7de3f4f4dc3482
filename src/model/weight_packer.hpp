// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/dataset_table.hpp"
#include "model/weights.hpp"
#include "weights/load.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace bathys::model {

// Turns the datasets of a rank, as the loader delivers them piece by piece, into packed weights.  Never holds more than
// one matrix's scales and a few rows unpacked.
class WeightPacker : public weights::WeightSink {
 public:
  // place: which share of each dataset this rank holds.
  WeightPacker(const config::ModelConfig& config, const catalog::RankPlace& place);
  ~WeightPacker() override;

  // What the text model is made of: all but draft stages and vision.
  [[nodiscard]] static bool wants(const catalog::DatasetSpec& dataset);
  void begin(const catalog::DatasetSpec& dataset, const catalog::Slice& local) override;
  void piece(const catalog::DatasetSpec& dataset, std::int64_t first_row, std::int64_t rows,
             std::span<const std::byte> bytes) override;
  void end(const catalog::DatasetSpec& dataset) override;

  // The packed model, once every wanted dataset has ended.
  //   throws Error(internal) naming the first dataset that was not delivered
  ModelWeights take();

 private:
  class Destination;
  class Plain;
  class Matrix;
  class Scales;

  const config::ModelConfig config_;
  const catalog::RankPlace place_;
  ModelWeights weights_;
  std::unique_ptr<Destination> current_;  // of the dataset between begin and end
  Scales* current_scales_ = nullptr;      // likewise, when it holds scales
  std::unordered_map<std::string, std::unique_ptr<Scales>>
      scales_;  // by the scale dataset's name, until its weight has ended
  std::unordered_set<std::string> ended_;
};

}  // namespace bathys::model
