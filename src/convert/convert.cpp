// SPDX-License-Identifier: Apache-2.0
#include "convert/convert.hpp"

#include "convert/shard_writer.hpp"
#include "convert/source_model.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "io/atomic_file.hpp"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

namespace bathys::convert {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
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

class Conversion {
 public:
  Conversion(const SourceModel& source, std::string folder, const ConvertOptions& options)
      : source_(source), folder_(std::move(folder)), options_(options), lock_(folder_), files_(shard_files(source)) {}

  ConvertReport run() {
    require_same_model();
    const std::vector<std::string> missing = missing_files();
    report_.files = static_cast<std::int64_t>(files_.size());
    report_.files_kept = report_.files - static_cast<std::int64_t>(missing.size());
    report_.datasets = static_cast<std::int64_t>(source_.table.size());
    report_.tensors = source_.n_tensors();
    if (!missing.empty() || !exists(io::kIndexFileName)) {
      remove(io::kIndexFileName);
      io::write_file(path(kStateFile), source_state(source_));
      write_shards(missing);
      io::ShardIndex index = source_.index;
      collect_shards(source_, folder_, index);
      io::write_shard_index(folder_, index);
    }
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
    const bool changed = exists(kStateFile) && io::read_small_file(path(kStateFile)) != source_state(source_);
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
    const io::Buffer buffer(io::kPieceBytes);
    std::uint64_t total = 0;
    for (const catalog::DatasetSpec& dataset : source_.table) {
      for (const std::string& file : files)
        total += file == dataset.file ? static_cast<std::uint64_t>(dataset.bytes()) : 0;
    }
    // Files of a changed checkpoint must not be taken for new ones if this run is interrupted as well.
    for (const std::string& file : files) remove(file);
    Timer since_line;
    for (const std::string& file : files) {
      write_shard(source_, folder_, file, buffer, [&](std::uint64_t bytes) {
        report_.bytes_written += bytes;
        if (since_line.seconds() < options_.progress_s) return;
        since_line.restart();
        const double rate = static_cast<double>(report_.bytes_written) / timer_.seconds();
        log::info("convert", "file={} done_gib={:.2f} of_gib={:.2f} rate_gib_s={:.2f} left_s={:.0f}", file,
                  static_cast<double>(report_.bytes_written) / kGib, static_cast<double>(total) / kGib, rate / kGib,
                  static_cast<double>(total - report_.bytes_written) / rate);
      });
    }
  }

  const SourceModel& source_;
  std::string folder_;
  ConvertOptions options_;
  io::FolderLock lock_;
  std::vector<std::string> files_;
  ConvertReport report_;
  Timer timer_;
};

}  // namespace

ConvertReport convert(const std::string& checkpoint_folder, const std::string& shard_folder,
                      const ConvertOptions& options) {
  return convert(SourceModel(checkpoint_folder), shard_folder, options);
}

ConvertReport convert(const SourceModel& source, const std::string& shard_folder, const ConvertOptions& options) {
  io::make_folder(shard_folder);  // the source is known to be sound
  return Conversion(source, shard_folder, options).run();
}

}  // namespace bathys::convert
