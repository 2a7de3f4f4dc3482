// SPDX-License-Identifier: Apache-2.0
#include "weights/load.hpp"

#include "core/error.hpp"
#include "core/timer.hpp"
#include "parallel/agree.hpp"
#include "weights/loader.hpp"

#include <algorithm>
#include <array>

namespace bathys::weights {
namespace {

// What would stop every rank later, in the middle of an exchange.
void require_loadable(const ShardModel& model, const std::vector<catalog::RankPlace>& places) {
  for (const catalog::DatasetSpec& dataset : model.table) {
    for (const catalog::RankPlace& place : places) static_cast<void>(catalog::local_slice(dataset, place));
    const std::int64_t row_bytes = row_shape(dataset).row_bytes;
    require(row_bytes <= static_cast<std::int64_t>(io::kPieceBytes), ExitCode::usage,
            "{}: a row of {} bytes is longer than a piece of {}: such a model cannot be loaded", dataset.name,
            row_bytes, io::kPieceBytes);
  }
}

}  // namespace

std::vector<catalog::RankPlace> one_group_places(int ranks) {
  std::vector<catalog::RankPlace> places;
  for (int rank = 0; rank < ranks; ++rank) places.push_back(catalog::RankPlace::one_group(ranks, rank));
  return places;
}

LoadReport load(const LoadGroups& groups, const ShardModel& model, const std::vector<catalog::RankPlace>& places,
                WeightSink& sink, const LoadOptions& options) {
  require(places.size() == static_cast<std::size_t>(groups.replica.size()), ExitCode::internal,
          "{} places given for {} ranks", places.size(), groups.replica.size());
  parallel::agree(groups.world, [&] { require_loadable(model, places); });
  const Timer timer;
  LoadReport report;
  if (model.synthetic) {  // nothing to send: each rank makes its own part, replicas as well
    report = load_directly({groups.world, groups.replica, nullptr}, model, places, sink, options);
  } else if (options.direct) {
    report = load_directly(groups, model, places, sink, options);
  } else {
    report = load_by_readers(groups, model, places, sink, options);
  }
  report.total_s = timer.seconds();
  return report;
}

LoadReport load(parallel::Collectives& world, const ShardModel& model, const std::vector<catalog::RankPlace>& places,
                WeightSink& sink, const LoadOptions& options) {
  return load(LoadGroups{world, world, nullptr}, model, places, sink, options);
}

LoadSummary summarize(parallel::Collectives& world, const ShardModel& model, const LoadReport& mine,
                      const LoadOptions& options, const std::string& host) {
  const std::vector<LoadReport> reports = world.all_gather_host(mine);
  const std::vector<std::string> hosts = world.gather_host(host, 0);
  LoadSummary summary;
  for (const catalog::DatasetSpec& dataset : model.table) {
    if (!options.wanted || options.wanted(dataset)) summary.model_bytes += static_cast<std::uint64_t>(dataset.bytes());
  }
  const auto busy = [](const LoadReport& r) { return r.open_s + r.read_s + r.sink_s; };
  std::size_t slowest = 0;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const LoadReport& r = reports[rank];
    summary.bytes_read += r.bytes_read;
    summary.bytes_held += r.bytes_held;
    summary.most.open_s = std::max(summary.most.open_s, r.open_s);
    summary.most.read_s = std::max(summary.most.read_s, r.read_s);
    summary.most.read_calls_s = std::max(summary.most.read_calls_s, r.read_calls_s);
    summary.most.wait_s = std::max(summary.most.wait_s, r.wait_s);
    summary.most.exchange_s = std::max(summary.most.exchange_s, r.exchange_s);
    summary.most.sink_s = std::max(summary.most.sink_s, r.sink_s);
    summary.most.total_s = std::max(summary.most.total_s, r.total_s);
    if (busy(r) > busy(reports[slowest])) slowest = rank;
  }
  summary.slowest_rank = static_cast<int>(slowest);
  if (!hosts.empty()) summary.slowest_host = hosts[slowest];
  return summary;
}

}  // namespace bathys::weights
