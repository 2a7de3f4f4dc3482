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
#include <string>
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
  int read_ahead = 2;   // pieces that a reader has under way while one is handed over, in threads of their own
  int readers = 1;      // how many ranks read, each its own files; spread over the ranks
  Wanted wanted;        // which datasets to load; all, when not given
};

struct LoadReport {
  std::uint64_t bytes_held = 0;  // handed to this rank's sink
  std::uint64_t bytes_read = 0;  // by this rank from files
  double open_s = 0;             // opening and checking files
  double read_s = 0;             // reading and checksums, of all threads together, mostly behind the next two
  double read_calls_s = 0;       // of these, in the read calls alone
  double wait_s = 0;             // waiting for a read to end
  double exchange_s = 0;         // packing, sending, receiving
  double sink_s = 0;             // in the sink
  double total_s = 0;
};

// What the ranks' reports say together; known on rank 0 as far as `slowest_host` goes.
struct LoadSummary {
  std::uint64_t model_bytes = 0;  // of the wanted datasets, each counted once
  std::uint64_t bytes_read = 0;   // by all ranks: divided by model_bytes, the read amplification
  std::uint64_t bytes_held = 0;   // by all ranks
  LoadReport most;                // of each of its seconds, that of the rank that has most
  int slowest_rank = 0;           // the rank that was busiest with opening, reading and its sink
  std::string slowest_host;
};
// Collective over `world`.
[[nodiscard]] LoadSummary summarize(parallel::Collectives& world, const ShardModel& model, const LoadReport& mine,
                                    const LoadOptions& options, const std::string& host);

// Places of a world that is one group: rank r holds the r-th part of everything that is cut.
[[nodiscard]] std::vector<catalog::RankPlace> one_group_places(int ranks);

// Who takes part in a load.  World and replica may be one.
struct LoadGroups {
  parallel::Collectives& world;    // all ranks: they end together
  parallel::Collectives& replica;  // the ranks that share one copy of the model
  // Of a job with several copies: the ranks of all replicas that hold what this rank holds.  The replica of its first
  // rank reads, the others receive from there.
  parallel::Collectives* peers = nullptr;
};

// Brings every rank its part of the model.  Collective over the groups; places[r] is where rank r of the replica
// stands, the same list on all ranks.  Memory on top of the sink's: read_ahead + 1 pieces on a reader, up to three more
// for what is sent or received.  A synthetic model is not read: each rank makes its own part.
//   throws AgreedError on all ranks: bad_input naming file and dataset (missing, truncated, damaged, of another model),
//   or what a sink threw; usage when the places cannot share the model
LoadReport load(const LoadGroups& groups, const ShardModel& model, const std::vector<catalog::RankPlace>& places,
                WeightSink& sink, const LoadOptions& options = {});
// The same for a world that is one replica.
LoadReport load(parallel::Collectives& world, const ShardModel& model, const std::vector<catalog::RankPlace>& places,
                WeightSink& sink, const LoadOptions& options = {});

}  // namespace bathys::weights
