// SPDX-License-Identifier: Apache-2.0
#include "convert/convert.hpp"

#include "convert/shard_writer.hpp"
#include "convert/source_model.hpp"
#include "convert/team.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "io/atomic_file.hpp"
#include "parallel/agree.hpp"

#include <cerrno>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

namespace bathys::convert {
namespace {

constexpr const char* kStateFile = "convert.state";

std::vector<std::string> shard_files(const SourceModel& source) {
  std::vector<std::string> files;
  for (const catalog::DatasetSpec& dataset : source.table) {
    if (files.empty() || files.back() != dataset.file) files.push_back(dataset.file);
  }
  return files;
}

// What must not change while a conversion is continued.  The model id covers structure but not payload, so the files'
// modification times are part of it; they stay out of the shards, whose bytes must not depend on them.
std::string source_state(const SourceModel& source) {
  Json state;
  state["model_id"] = source.index.model_id;
  state["files"] = Json::array();
  if (!source.checkpoint) return state.dump() + "\n";
  for (const auto& file : source.checkpoint->files()) {
    struct stat status {};
    require(::stat(file->path().c_str(), &status) == 0, ExitCode::bad_input, "{}: has vanished", file->path());
    state["files"].push_back({{"file", std::filesystem::path(file->path()).filename().string()},
                              {"bytes", file->file().size()},
                              {"modified_s", status.st_mtim.tv_sec},
                              {"modified_ns", status.st_mtim.tv_nsec}});
  }
  return state.dump() + "\n";
}

// One rank's part of a conversion.
class Conversion {
 public:
  Conversion(parallel::Collectives& world, const SourceModel& source, std::string folder, const ConvertOptions& options)
      : world_(world), source_(source), folder_(std::move(folder)), options_(options), files_(shard_files(source)) {}

  ConvertReport run() {
    require_one_source();
    state_ = world_.broadcast_host(parallel::agree(world_, [&] { return source_state(source_); }), 0);
    const std::vector<std::string> missing = begin();
    report_.files = static_cast<std::int64_t>(files_.size());
    report_.files_kept = report_.files - static_cast<std::int64_t>(missing.size());
    report_.datasets = static_cast<std::int64_t>(source_.table.size());
    report_.tensors = source_.n_tensors();
    write_shards(missing);
    parallel::agree(world_, [&] {
      if (world_.rank() == 0) finish();
    });
    report_.seconds = timer_.seconds();
    return report_;
  }

 private:
  [[nodiscard]] std::string path(std::string_view name) const { return folder_ + "/" + std::string(name); }
  [[nodiscard]] bool exists(std::string_view name) const {
    std::error_code error;
    return std::filesystem::exists(path(name), error);
  }
  void remove(std::string_view name) const {
    if (::unlink(path(name).c_str()) != 0 && errno != ENOENT) io::fail_write(errno, path(name), "removed");
  }

  void require_one_source() {
    const std::string first = world_.broadcast_host(source_.index.model_id, 0);
    parallel::agree(world_, [&] {
      require(source_.index.model_id == first, ExitCode::bad_input,
              "this rank sees another checkpoint than rank 0 (model {}, not {}); all ranks must see the same files",
              source_.index.model_id, first);
    });
  }

  // What rank 0 finds and prepares.  Returns the files to be written.
  std::vector<std::string> begin() {
    return broadcast_lines(world_, parallel::agree(world_, [&] {
                             if (world_.rank() != 0) return std::vector<std::string>{};
                             io::make_folder(folder_);
                             lock_.emplace(folder_);
                             require_same_model();
                             std::vector<std::string> missing = missing_files();
                             if (missing.empty() && exists(io::kIndexFileName)) return missing;
                             remove(io::kIndexFileName);
                             io::write_file(path(kStateFile), state_);
                             // Files of a changed checkpoint must not be taken for new ones if this run is
                             // interrupted as well.
                             for (const std::string& file : missing) remove(file);
                             return missing;
                           }));
  }

  // A finished model in the folder must be this one.
  void require_same_model() const {
    if (!exists(io::kIndexFileName)) return;
    std::string found;
    try {
      found = io::read_shard_index(folder_).model_id;
    } catch (const Error& cause) {
      log::warn("convert", "note=\"index written anew\" cause=\"{}\"", cause.what());
      remove(io::kIndexFileName);
      return;
    }
    require(found == source_.index.model_id, ExitCode::usage,
            "{}: holds another model ({}); choose another folder for this one", folder_, found);
  }

  // The shard files still to be written.  Finished ones count only if the checkpoint is as it was when they were made:
  // the identity of a model rests on its headers alone, which two trainings of one architecture share.
  [[nodiscard]] std::vector<std::string> missing_files() const {
    const bool changed = exists(kStateFile) && io::read_small_file(path(kStateFile)) != state_;
    if (changed)
      log::warn("convert",
                "note=\"the checkpoint is not the one that these shards were made from: all files are written anew\"");
    std::vector<std::string> missing;
    for (const std::string& file : files_) {
      if (!is_complete_shard(source_, folder_, file) || changed) missing.push_back(file);
    }
    return missing;
  }

  void write_shards(const std::vector<std::string>& files) {
    std::unordered_map<std::string, std::uint64_t> bytes_of;
    for (const catalog::DatasetSpec& dataset : source_.table)
      bytes_of[dataset.file] += static_cast<std::uint64_t>(dataset.bytes());
    std::vector<std::uint64_t> sizes;
    for (const std::string& file : files) sizes.push_back(bytes_of.at(file));
    const std::vector<int> rank_of = share_out(sizes, world_.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (rank_of[i] == world_.rank()) mine_.push_back(files[i]);
    }
    TeamOptions team;
    team.event = "convert";
    team.progress_s = options_.progress_s;
    team.total_bytes = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    team.alive = options_.alive;
    TeamReport done;
    try {
      done = work_together(world_, team, [this] { return step(); });
    } catch (const Error& cause) {
      if (writer_) cause.code() == ExitCode::stopped ? writer_->leave() : writer_->discard();
      throw;
    } catch (...) {
      if (writer_) writer_->discard();
      throw;
    }
    parallel::agree(world_, [&] {
      if (done.stopped && writer_) writer_->suspend();
    });
    require_not_stopped(done.stopped);
    report_.bytes_resumed = static_cast<std::uint64_t>(
        world_.all_reduce_host(static_cast<std::int64_t>(report_.bytes_resumed), parallel::Reduce::sum));
    report_.bytes_written = done.bytes - report_.bytes_resumed;
  }

  // A piece of the file at hand; what an earlier run had written of it counts as done at once.
  std::optional<std::uint64_t> step() {
    while (writer_ || next_ < mine_.size()) {
      if (!writer_) {
        ShardWriteOptions write;
        write.source_state = state_;
        if (options_.mark_bytes > 0) write.mark_bytes = options_.mark_bytes;
        writer_ = std::make_unique<ShardWriter>(source_, folder_, mine_[next_++], write);
        report_.bytes_resumed += writer_->resumed_bytes();
        if (writer_->resumed_bytes() > 0) return writer_->resumed_bytes();
      }
      const auto bytes = writer_->step();
      if (bytes) return bytes;
      writer_.reset();
    }
    return std::nullopt;
  }

  // On rank 0, once every shard is there: the index, which makes the folder a model.
  void finish() {
    if (exists(io::kIndexFileName)) return;
    for (const std::string& file : files_) {
      for (const std::string& leftover : leftover_names(path(file))) ::unlink(leftover.c_str());
    }
    io::ShardIndex index = source_.index;
    collect_shards(source_, folder_, index);
    io::write_shard_index(folder_, index);
  }

  parallel::Collectives& world_;
  const SourceModel& source_;
  std::string folder_;
  ConvertOptions options_;
  std::vector<std::string> files_;
  std::string state_;
  std::optional<io::FolderLock> lock_;  // on rank 0
  std::vector<std::string> mine_;       // files that this rank writes
  std::size_t next_ = 0;
  std::unique_ptr<ShardWriter> writer_;
  ConvertReport report_;
  Timer timer_;
};

}  // namespace

ConvertReport convert(parallel::Collectives& world, const std::string& checkpoint_folder,
                      const std::string& shard_folder, const ConvertOptions& options) {
  const SourceModel source = parallel::agree(world, [&] { return SourceModel(checkpoint_folder); });
  return convert(world, source, shard_folder, options);
}

ConvertReport convert(const std::string& checkpoint_folder, const std::string& shard_folder,
                      const ConvertOptions& options) {
  return convert(*parallel::make_single_collectives(), checkpoint_folder, shard_folder, options);
}

ConvertReport convert(const SourceModel& source, const std::string& shard_folder, const ConvertOptions& options) {
  return convert(*parallel::make_single_collectives(), source, shard_folder, options);
}

ConvertReport convert(parallel::Collectives& world, const SourceModel& source, const std::string& shard_folder,
                      const ConvertOptions& options) {
  return Conversion(world, source, shard_folder, options).run();
}

}  // namespace bathys::convert
