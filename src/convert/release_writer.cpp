// SPDX-License-Identifier: Apache-2.0
#include "convert/release_writer.hpp"

#include "convert/team.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/timer.hpp"
#include "io/atomic_file.hpp"
#include "io/file.hpp"
#include "io/safetensors.hpp"
#include "parallel/agree.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace bathys::convert {
namespace {

constexpr std::uint64_t kBufferBytes = std::uint64_t{8} << 20;

// A folder is ours when it is empty or an earlier run for this very model began it: a checkpoint that somebody cares
// for is never written over.
void claim_folder(const std::string& folder, const ReleaseSource& source) {
  const std::string path = folder + "/" + source.mark_name;
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    require(io::read_small_file(path) == source.mark_text, ExitCode::usage,
            "{}: holds another model (see {}); choose another folder for this one", folder, source.mark_name);
    return;
  }
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    require(name.starts_with('.') || name.ends_with(".partial"), ExitCode::usage,
            "{}: holds {}; choose an empty folder", folder, name);
  }
  require(!error, ExitCode::usage, "{}: cannot be read: {}", folder, error.message());
  io::write_file(path, source.mark_text);
}

// One rank's part of the writing.
class Writer {
 public:
  Writer(parallel::Collectives& world, const ReleaseSource& source, std::string folder, const ReleaseOptions& options)
      : world_(world),
        source_(source),
        folder_(std::move(folder)),
        options_(options),
        table_(catalog::tensor_table(source.config)),
        n_files_(catalog::released_file_count(source.config)) {}

  ReleaseReport run() {
    const std::vector<std::string> missing = begin();
    report_.files = n_files_;
    report_.files_kept = n_files_ - static_cast<std::int64_t>(missing.size());
    write_files(missing);
    parallel::agree(world_, [&] {
      if (world_.rank() == 0) write_index();
    });
    report_.seconds = timer_.seconds();
    return report_;
  }

 private:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string file_name(const catalog::TensorSpec& spec) const {
    return catalog::released_file_name(spec.file, n_files_);
  }

  // On rank 0: the folder and its small files.  Returns the files to be written; under its name a file is whole.
  std::vector<std::string> begin() {
    return broadcast_lines(world_, parallel::agree(world_, [&] {
                             std::vector<std::string> missing;
                             if (world_.rank() != 0) return missing;
                             io::make_folder(folder_);
                             lock_.emplace(folder_);
                             claim_folder(folder_, source_);
                             write_texts();
                             for (int file = 0; file < n_files_; ++file) {
                               std::error_code error;
                               const std::string name = catalog::released_file_name(file, n_files_);
                               if (!std::filesystem::exists(path(name), error)) missing.push_back(name);
                             }
                             return missing;
                           }));
  }

  void write_texts() const {
    io::write_file(path("config.json"), source_.texts->config_json);
    io::write_file(path("tokenizer.json"), source_.texts->tokenizer_json);
    if (!source_.texts->tokenizer_config_json.empty())
      io::write_file(path("tokenizer_config.json"), source_.texts->tokenizer_config_json);
  }

  void write_files(const std::vector<std::string>& files) {
    std::vector<std::uint64_t> sizes(files.size(), 0);
    for (const catalog::TensorSpec& spec : table_) {
      const auto found = std::find(files.begin(), files.end(), file_name(spec));
      if (found != files.end())
        sizes[static_cast<std::size_t>(found - files.begin())] += static_cast<std::uint64_t>(spec.bytes());
    }
    const std::vector<int> rank_of = share_out(sizes, world_.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (rank_of[i] == world_.rank()) mine_.push_back(files[i]);
    }
    TeamOptions team;
    team.event = options_.event;
    team.progress_s = options_.progress_s;
    team.total_bytes = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    team.alive = options_.alive;
    const TeamReport done = work_together(world_, team, [this] { return step(); });
    require_not_stopped(done.stopped);
    report_.bytes_written = done.bytes;
  }

  // The next bytes of the file at hand.
  std::optional<std::uint64_t> step() {
    if (!writer_) {
      if (next_file_ == mine_.size()) return std::nullopt;
      open(mine_[next_file_++]);
    }
    if (tensor_ == specs_.size()) {
      writer_->commit();
      writer_.reset();
      return 0;
    }
    const catalog::TensorSpec& spec = *specs_[tensor_];
    const auto total = static_cast<std::uint64_t>(spec.bytes());
    const auto bytes = buffer_.first(static_cast<std::size_t>(std::min(kBufferBytes, total - offset_)));
    source_.read(spec, offset_, bytes);
    writer_->append(bytes);
    offset_ += bytes.size();
    if (offset_ == total) {
      ++tensor_;
      offset_ = 0;
    }
    return bytes.size();
  }

  void open(const std::string& file) {
    specs_.clear();
    std::vector<io::TensorInfo> infos;
    for (const catalog::TensorSpec& spec : table_) {
      if (file_name(spec) != file) continue;
      specs_.push_back(&spec);
      infos.push_back({spec.name, std::string(catalog::safetensors_dtype(spec.dtype)), spec.shape, 0,
                       static_cast<std::uint64_t>(spec.bytes())});
    }
    tensor_ = 0;
    offset_ = 0;
    writer_ = std::make_unique<io::SafetensorsWriter>(path(file), infos);
  }

  void write_index() {
    std::uint64_t total = 0;
    Json::object_t files;  // a plain list of pairs: no search on insertion
    files.reserve(table_.size());
    for (const catalog::TensorSpec& spec : table_) {
      total += static_cast<std::uint64_t>(spec.bytes());
      files.push_back({spec.name, file_name(spec)});
    }
    Json index;
    index["metadata"]["total_size"] = total;
    index["weight_map"] = std::move(files);
    io::write_file(folder_ + "/model.safetensors.index.json", index.dump(1) + "\n");
  }

  parallel::Collectives& world_;
  const ReleaseSource& source_;
  std::string folder_;
  ReleaseOptions options_;
  std::optional<io::FolderLock> lock_;  // on rank 0
  std::vector<catalog::TensorSpec> table_;
  int n_files_;
  std::vector<std::string> mine_;  // files that this rank writes
  std::size_t next_file_ = 0;
  std::vector<const catalog::TensorSpec*> specs_;  // of the file at hand, and the place in it
  std::size_t tensor_ = 0;
  std::uint64_t offset_ = 0;
  io::Buffer buffer_{kBufferBytes};
  std::unique_ptr<io::SafetensorsWriter> writer_;
  ReleaseReport report_;
  Timer timer_;
};

}  // namespace

ReleaseReport write_release(parallel::Collectives& world, const ReleaseSource& source, const std::string& folder,
                            const ReleaseOptions& options) {
  return Writer(world, source, folder, options).run();
}

}  // namespace bathys::convert
