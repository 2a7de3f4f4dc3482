// SPDX-License-Identifier: Apache-2.0
#include "convert/synth.hpp"

#include "catalog/tensor_table.hpp"
#include "convert/synthetic_tokenizer.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "io/atomic_file.hpp"
#include "io/file.hpp"
#include "io/hash.hpp"
#include "io/safetensors.hpp"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace bathys::convert {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr std::uint64_t kBufferBytes = std::uint64_t{8} << 20;
constexpr const char* kMark = "synthetic.json";

std::string mark_text(const SourceModel& model) {
  Json mark;
  mark["generator_version"] = catalog::kSyntheticVersion;
  mark["seed"] = model.synthetic->seed();
  mark["config_sha256"] = io::sha256_hex(model.index.config_json);
  mark["tokenizer_sha256"] = io::sha256_hex(model.index.tokenizer_json);
  return mark.dump(1) + "\n";
}

// A folder is ours when it is empty or an earlier run for this very model began it: a checkpoint that somebody cares
// for is never written over.
void claim_folder(const std::string& folder, const std::string& mark) {
  const std::string path = folder + "/" + kMark;
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    require(io::read_small_file(path) == mark, ExitCode::usage,
            "{}: holds another synthetic model (see {}); choose another folder for this one", folder, kMark);
    return;
  }
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    require(name.starts_with('.') || name.ends_with(".partial"), ExitCode::usage,
            "{}: holds {}; choose an empty folder", folder, name);
  }
  require(!error, ExitCode::usage, "{}: cannot be read: {}", folder, error.message());
  io::write_file(path, mark);
}

class CheckpointWriter {
 public:
  CheckpointWriter(const SourceModel& model, std::string folder, double progress_s)
      : model_(model),
        folder_(std::move(folder)),
        progress_s_(progress_s),
        lock_(folder_),
        table_(catalog::tensor_table(model.config)),
        n_files_(catalog::released_file_count(model.config)) {}

  SynthReport run() {
    claim_folder(folder_, mark_text(model_));
    io::write_file(folder_ + "/config.json", model_.index.config_json);
    io::write_file(folder_ + "/tokenizer.json", model_.index.tokenizer_json);
    for (auto first = table_.begin(); first != table_.end();) {
      const auto last =
          std::find_if(first, table_.end(), [&](const catalog::TensorSpec& spec) { return spec.file != first->file; });
      write_file(std::span(first, last));
      first = last;
    }
    write_index();
    report_.seconds = timer_.seconds();
    return report_;
  }

 private:
  [[nodiscard]] std::string file_name(const catalog::TensorSpec& spec) const {
    return catalog::released_file_name(spec.file, n_files_);
  }

  void write_file(std::span<const catalog::TensorSpec> specs) {
    const std::string path = folder_ + "/" + file_name(specs.front());
    ++report_.files;
    std::error_code error;
    if (std::filesystem::exists(path, error)) {  // under its name it is whole
      ++report_.files_kept;
      return;
    }
    std::vector<io::TensorInfo> infos;
    infos.reserve(specs.size());
    for (const catalog::TensorSpec& spec : specs) {
      infos.push_back({spec.name, std::string(catalog::safetensors_dtype(spec.dtype)), spec.shape, 0,
                       static_cast<std::uint64_t>(spec.bytes())});
    }
    io::SafetensorsWriter writer(path, infos);
    for (const io::TensorInfo& info : infos) write_tensor(writer, info);
    writer.commit();
  }

  void write_tensor(io::SafetensorsWriter& writer, const io::TensorInfo& info) {
    for (std::uint64_t at = 0; at < info.bytes; at += kBufferBytes) {
      const auto bytes = buffer_.first(static_cast<std::size_t>(std::min(kBufferBytes, info.bytes - at)));
      model_.synthetic->read(info.name, at, bytes);
      writer.append(bytes);
      report_.bytes_written += bytes.size();
      if (since_line_.seconds() < progress_s_) continue;
      since_line_.restart();
      log::info("synth", "tensor={} done_gib={:.2f} rate_gib_s={:.2f}", info.name,
                static_cast<double>(report_.bytes_written) / kGib,
                static_cast<double>(report_.bytes_written) / kGib / timer_.seconds());
    }
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

  const SourceModel& model_;
  std::string folder_;
  double progress_s_;
  io::FolderLock lock_;
  std::vector<catalog::TensorSpec> table_;
  int n_files_;
  io::Buffer buffer_{kBufferBytes};
  SynthReport report_;
  Timer timer_;
  Timer since_line_;
};

}  // namespace

SourceModel synthesize(const std::string& config_path, const SynthOptions& options) {
  SourceModel::Texts texts;
  texts.config_name = config_path;
  texts.config = io::read_checkpoint_text(config_path);
  if (options.tokenizer.empty()) {
    texts.tokenizer_name = "the synthetic tokenizer.json";
    texts.tokenizer = synthetic_tokenizer_json(config::read_model_config(texts.config, config_path));
  } else {
    texts.tokenizer_name = options.tokenizer;
    texts.tokenizer = io::read_checkpoint_text(options.tokenizer);
  }
  return {std::move(texts), options.seed};
}

SynthReport write_checkpoint(const SourceModel& model, const std::string& folder, double progress_s) {
  require(model.synthetic.has_value(), ExitCode::internal, "only a synthetic model is written as a checkpoint");
  io::make_folder(folder);
  return CheckpointWriter(model, folder, progress_s).run();
}

}  // namespace bathys::convert
