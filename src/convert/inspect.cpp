// SPDX-License-Identifier: Apache-2.0
#include "convert/inspect.hpp"

#include "catalog/dataset_table.hpp"
#include "config/model_config.hpp"
#include "convert/verify.hpp"
#include "core/exit_code.hpp"
#include "core/json.hpp"
#include "io/shard_index.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace bathys::convert {
namespace {

constexpr double kMib = 1024.0 * 1024.0;
constexpr int kMostRanks = 64;

// One model copy over groups * tensor ranks.
struct RankShare {
  int groups = 1;
  int tensor = 1;
  [[nodiscard]] int ranks() const { return groups * tensor; }
  [[nodiscard]] bool fits(double memory_gib) const {
    return static_cast<double>(largest.total()) <= memory_gib * 0x1p30;
  }
  catalog::RankBytes largest;  // of the rank that holds most
};

struct Model {
  io::ShardIndex index;
  config::ModelConfig config;
  std::vector<catalog::DatasetSpec> table;
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  std::map<std::string, std::int64_t> by_dtype;
  std::map<std::string, std::int64_t> by_part;
  std::vector<RankShare> shares;
};

Model open_model(const std::string& folder) {
  VerifyOptions structure;
  structure.checksums = false;
  verify(folder, structure);
  Model model;
  model.index = io::read_shard_index(folder);
  model.config = config::read_model_config(model.index.config_json, folder + "/index.h5: config.json");
  model.table = catalog::dataset_table(model.config);
  for (const catalog::DatasetSpec& dataset : model.table) {
    model.tensors += static_cast<std::int64_t>(dataset.tensors.size());
    model.bytes += dataset.bytes();
    model.by_dtype[std::string(catalog::safetensors_dtype(dataset.dtype))] += dataset.bytes();
    model.by_part[std::string(catalog::part_name(dataset.part))] += dataset.bytes();
  }
  // Attention cannot be cut further than the output groups; tables can, over groups of ranks, and so can experts as far
  // as each rank has one: what parallel::choose_layout() refuses is no choice.
  const std::int64_t most_ranks = std::min<std::int64_t>(kMostRanks, model.config.n_routed_experts);
  for (int ranks = 1; ranks <= most_ranks; ranks *= 2) {
    const int tensor = std::gcd(ranks, model.config.o_groups);
    RankShare share{ranks / tensor, tensor, {}};
    for (int rank = 0; rank < ranks; ++rank) {
      const auto bytes = catalog::rank_bytes(model.table, {tensor, rank % tensor, ranks, rank});
      if (bytes.total() > share.largest.total()) share.largest = bytes;
    }
    model.shares.push_back(share);
  }
  return model;
}

std::string in_mib(std::int64_t bytes) { return fmt::format("{:12.2f} MiB", static_cast<double>(bytes) / kMib); }

}  // namespace

std::string inspect_text(const std::string& shard_folder, double memory_gib) {
  const Model model = open_model(shard_folder);
  std::string out;
  const auto line = [&out]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
    out += '\n';
  };
  line("model     {}", model.index.model_id);
  line("content   {}", model.index.content_id());
  line("tensors   {} in {} datasets, {} files", model.tensors, model.table.size(), model.index.file_bytes.size());
  line("bytes     {} ({})", model.bytes, in_mib(model.bytes));
  for (const auto& [dtype, bytes] : model.by_dtype) line("  {:8} {}", dtype, in_mib(bytes));
  line("parts");
  for (const auto& [part, bytes] : model.by_part) line("  {:8} {}", part, in_mib(bytes));
  line("largest share of one rank, by layout");
  for (const RankShare& share : model.shares) {
    const catalog::RankBytes& b = share.largest;
    line(
        "  {:2} rank{} groups={},tensor={} {}{} (global {}, layers {}, experts {}, engram {}, draft {}, vision {} "
        "bytes)",
        share.ranks(), share.ranks() == 1 ? " " : "s", share.groups, share.tensor, in_mib(b.total()),
        memory_gib <= 0          ? ""
        : share.fits(memory_gib) ? " fits"
                                 : " does not fit",
        b.global, b.layer, b.experts, b.engram, b.draft, b.vision);
  }
  line("sources");
  for (const io::ShardSource& source : model.index.sources)
    line("  {} {} bytes, sha256 {}", source.file, source.bytes, source.sha256);
  line("config    {}", config::to_inference_json(model.config));
  return out;
}

std::string inspect_json(const std::string& shard_folder, double memory_gib) {
  const Model model = open_model(shard_folder);
  Json out;
  out["format"] = io::kShardFormat;
  out["format_version"] = io::kShardFormatVersion;
  out["model_id"] = model.index.model_id;
  out["content_id"] = model.index.content_id();
  out["config"] = parse_json(model.index.config_json, "config.json", ExitCode::bad_input);
  out["model"] = parse_json(config::to_inference_json(model.config), "config", ExitCode::internal);
  const Json index = parse_json(model.index.to_json(), io::kIndexFileName, ExitCode::internal);
  out["sources"] = index["sources"];
  out["n_tensors"] = model.tensors;
  out["n_datasets"] = model.table.size();
  out["bytes"] = model.bytes;
  out["bytes_by_dtype"] = model.by_dtype;
  out["bytes_by_part"] = model.by_part;
  out["ranks"] = Json::array();
  for (const RankShare& share : model.shares) {
    const catalog::RankBytes& b = share.largest;
    out["ranks"].push_back({{"ranks", share.ranks()},
                            {"groups", share.groups},
                            {"tensor", share.tensor},
                            {"bytes", b.total()},
                            {"global", b.global},
                            {"layers", b.layer},
                            {"experts", b.experts},
                            {"engram", b.engram},
                            {"draft", b.draft},
                            {"vision", b.vision}});
    if (memory_gib > 0) out["ranks"].back()["fits"] = share.fits(memory_gib);
  }
  out["files"] = index["files"];
  out["datasets"] = index["datasets"];
  return out.dump(1) + "\n";
}

}  // namespace bathys::convert
