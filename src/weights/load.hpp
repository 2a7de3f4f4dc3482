// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/dataset_table.hpp"
#include "parallel/collectives.hpp"
#include "weights/schedule.hpp"
#include "weights/shard_model.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace bathys::weights {

// Receives a rank's part of the model, dataset by dataset in table order: begin, then its rows in pieces by ascending
// row, then end. Rows are those of the slice (schedule.hpp): experts of a stack follow each other, a row of a column
// slice is its cut part.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  // `slice` may be empty: then no piece follows.
  virtual void begin(const catalog::DatasetSpec& dataset, const catalog::Slice& slice) = 0;
  // rows [first_row, first_row + n_rows) of the slice, n_rows * row bytes without gaps; valid during the call alone.
  virtual void piece(const catalog::DatasetSpec& dataset, std::int64_t first_row, std::int64_t n_rows,
                     std::span<const std::byte> bytes) = 0;
  virtual void end(const catalog::DatasetSpec& dataset) = 0;
};

struct LoadOptions {
  std::function<void()> progress;  // called after each round, when given: a long load is no hang
  bool checksums = true;           // check every piece that is read
  bool direct = false;  // every rank reads its own part, for parallel file systems; otherwise readers read and send
  int readers = 1;      // how many ranks read, each its own files; spread over the ranks
  Wanted wanted;        // which datasets to load; all, when not given
};

struct LoadReport {
  std::uint64_t bytes_held = 0;  // handed to this rank's sink
  std::uint64_t bytes_read = 0;  // by this rank from files
  double open_s = 0;             // opening and checking files
  double read_s = 0;             // reading and checksums, mostly behind the next two
  double wait_s = 0;             // waiting for a read to end
  double exchange_s = 0;         // packing, sending, receiving
  double sink_s = 0;             // in the sink
  double total_s = 0;
};

// Places of a world that is one group: rank r holds the r-th part of everything that is cut.
[[nodiscard]] std::vector<catalog::RankPlace> one_group_places(int ranks);

// Brings every rank its part of the model.  Collective over `world`; places[r] is where rank r stands, the same list on
// all ranks.  Memory on top of the sink's: two rounds on a reader, up to two more for what is sent or received.
//   throws AgreedError on all ranks: bad_input naming file and dataset (missing, truncated, damaged, of another model),
//   or what a sink threw; usage when the places cannot share the model
LoadReport load(parallel::Collectives& world, const ShardModel& model, const std::vector<catalog::RankPlace>& places,
                WeightSink& sink, const LoadOptions& options = {});

}  // namespace bathys::weights
