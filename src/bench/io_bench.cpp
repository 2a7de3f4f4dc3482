// SPDX-License-Identifier: Apache-2.0
#include "bench/io_bench.hpp"

#include "convert/convert.hpp"
#include "convert/verify.hpp"
#include "core/error.hpp"
#include "core/timer.hpp"
#include "io/atomic_file.hpp"
#include "io/file.hpp"
#include "weights/load.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <system_error>

namespace bathys::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBlockBytes = std::uint64_t{16} << 20;

std::vector<std::string> files_ending(const std::string& folder, std::string_view ending) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().string().ends_with(ending)) files.push_back(it->path().string());
  }
  require(!error, ExitCode::bad_input, "{}: cannot be read: {}", folder, error.message());
  std::sort(files.begin(), files.end());
  return files;
}

std::uint64_t bytes_of(const std::vector<std::string>& files) {
  std::uint64_t bytes = 0;
  for (const std::string& file : files) bytes += io::ReadFile(file).size();
  return bytes;
}

void forget(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const io::ReadFile file(path);
    file.done_with(0, file.size());
  }
}

void copy_files(const std::vector<std::string>& files, const std::string& folder) {
  const io::Buffer buffer(kBlockBytes);
  for (const std::string& path : files) {
    const io::ReadFile from(path);
    io::AtomicFile to(folder + "/" + fs::path(path).filename().string());
    for (std::uint64_t at = 0; at < from.size(); at += kBlockBytes) {
      const auto block = buffer.first(static_cast<std::size_t>(std::min(kBlockBytes, from.size() - at)));
      from.read_at(at, block);
      to.write(block);
    }
    to.commit();
  }
}

void read_files(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const io::ReadFile file(path);
    const io::Buffer whole(static_cast<std::size_t>(file.size()));
    for (std::uint64_t at = 0; at < file.size(); at += kBlockBytes) {
      const std::uint64_t bytes = std::min(kBlockBytes, file.size() - at);
      file.read_at(at, {whole.data() + at, static_cast<std::size_t>(bytes)});
    }
  }
}

// Keeps each dataset whole, in memory of its own, until the next begins.
class KeepingSink : public weights::WeightSink {
 public:
  void begin(const catalog::DatasetSpec& /*dataset*/, const catalog::Slice& slice) override {
    whole_ = io::Buffer();
    whole_ = io::Buffer(static_cast<std::size_t>(slice.bytes));
  }
  void piece(const catalog::DatasetSpec& /*dataset*/, std::int64_t first_row, std::int64_t n_rows,
             std::span<const std::byte> bytes) override {
    std::memcpy(whole_.data() + static_cast<std::int64_t>(bytes.size()) / n_rows * first_row, bytes.data(),
                bytes.size());
  }
  void end(const catalog::DatasetSpec& /*dataset*/) override {}

 private:
  io::Buffer whole_;
};

void load_shards(const std::string& folder) {
  const auto world = parallel::make_single_collectives();
  const weights::ShardModel model = weights::open_shards(*world, folder);
  KeepingSink sink;
  weights::load(*world, model, weights::one_group_places(1), sink);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds_of(const std::function<void()>& work) {
  const Timer timer;
  work();
  return timer.seconds();
}

// Folders below the scratch folder, gone at the end.
class Scratch {
 public:
  explicit Scratch(const std::string& folder) : path_(folder + "/bathys-bench-io") {
    io::make_folder(folder);
    require(!fs::exists(path_), ExitCode::usage, "{}: is there already; remove it or choose another folder", path_);
  }
  ~Scratch() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string fresh(const std::string& name) const {
    std::string folder = path_ + "/" + name;
    std::error_code error;
    fs::remove_all(folder, error);
    io::make_folder(folder);
    return folder;
  }

 private:
  std::string path_;
};

}  // namespace

std::vector<IoBenchLine> bench_io(const IoBenchOptions& options, std::ostream& out) {
  const Scratch scratch(options.scratch);
  const std::vector<std::string> sources = files_ending(options.checkpoint, ".safetensors");
  std::vector<double> copy, convert, read, shard_copy, verify, load;
  std::uint64_t source_bytes = bytes_of(sources);
  std::uint64_t shard_bytes = 0;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    const auto cold = [&](const std::vector<std::string>& files) {
      if (options.cold) forget(files);
    };
    cold(sources);
    const std::string copied = scratch.fresh("copy");
    copy.push_back(seconds_of([&] { copy_files(sources, copied); }));
    scratch.fresh("copy");
    cold(sources);
    const std::string shards = scratch.fresh("shards");
    convert.push_back(seconds_of([&] { convert::convert(options.checkpoint, shards); }));
    const std::vector<std::string> files = files_ending(shards, ".h5");
    shard_bytes = bytes_of(files);
    cold(files);
    read.push_back(seconds_of([&] { read_files(files); }));
    cold(files);
    const std::string shards_copied = scratch.fresh("copy");
    shard_copy.push_back(seconds_of([&] { copy_files(files, shards_copied); }));
    scratch.fresh("copy");
    cold(files);
    verify.push_back(seconds_of([&] { convert::verify(shards); }));
    cold(files);
    load.push_back(seconds_of([&] { load_shards(shards); }));
  }
  std::vector<IoBenchLine> lines = {{"convert", "copy", source_bytes, median(convert), median(copy)},
                                    {"verify", "read", shard_bytes, median(verify), median(read)},
                                    {"load", "read", shard_bytes, median(load), median(read)},
                                    {"verify", "copy", shard_bytes, median(verify), median(shard_copy)},
                                    {"load", "copy", shard_bytes, median(load), median(shard_copy)}};
  for (const IoBenchLine& line : lines) {
    const double gigabytes = static_cast<double>(line.bytes) / 1e9;
    out << fmt::format("{:8} bytes={} seconds={:.3f} gb_per_s={:.2f} plain_{}_gb_per_s={:.2f} ratio={:.2f}\n",
                       line.what, line.bytes, line.seconds, gigabytes / line.seconds, line.plain,
                       gigabytes / line.plain_seconds, line.ratio());
  }
  return lines;
}

}  // namespace bathys::bench
