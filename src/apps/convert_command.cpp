// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "convert/convert.hpp"
#include "convert/export.hpp"
#include "core/log.hpp"
#include "parallel/session.hpp"
#include "parallel/signals.hpp"
#include "parallel/watchdog.hpp"

#include <memory>
#include <string>

namespace bathys::apps {
namespace {

struct Options {
  std::string from, to_folder;
  std::string to = "shards";
  parallel::SessionOptions session;
};

double rate_gib_s(std::uint64_t bytes, double seconds) { return static_cast<double>(bytes) / 0x1p30 / seconds; }

ExitCode convert_model(parallel::Session& session, const Options& options) {
  const auto alive = [&] { session.watchdog().progress("convert"); };
  if (options.to == "shards") {
    convert::ConvertOptions how;
    how.alive = alive;
    const auto report = convert::convert(session.world(), options.from, options.to_folder, how);
    log::info("convert",
              "files={} files_kept={} datasets={} tensors={} bytes_written={} bytes_resumed={} seconds={:.2f} "
              "rate_gib_s={:.2f}",
              report.files, report.files_kept, report.datasets, report.tensors, report.bytes_written,
              report.bytes_resumed, report.seconds, rate_gib_s(report.bytes_written, report.seconds));
  } else {
    convert::ReleaseOptions how;
    how.alive = alive;
    const auto report = convert::export_checkpoint(session.world(), options.from, options.to_folder, how);
    log::info("convert", "to=safetensors files={} files_kept={} bytes_written={} seconds={:.2f} rate_gib_s={:.2f}",
              report.files, report.files_kept, report.bytes_written, report.seconds,
              rate_gib_s(report.bytes_written, report.seconds));
  }
  return ExitCode::ok;
}

}  // namespace

// bathys convert CHECKPOINT_DIR SHARD_DIR: a released checkpoint as HDF5 shards; --to safetensors goes the other way.
void add_convert(CLI::App& program, Commands& commands) {
  CLI::App* const app = program.add_subcommand(
      "convert",
      "Convert a released checkpoint folder to HDF5 shards, or back; stopped, the same command goes on, on any "
      "number of ranks");
  const auto options = std::make_shared<Options>();
  app->add_option("CHECKPOINT_DIR", options->from,
                  "folder with config.json, tokenizer.json and safetensors files; with --to safetensors, of shards")
      ->required();
  app->add_option("SHARD_DIR", options->to_folder, "folder to write")->required();
  app->add_option("--to", options->to, "shards: HDF5; safetensors: shards as a checkpoint again, byte for byte")
      ->check(CLI::IsMember({"shards", "safetensors"}))
      ->capture_default_str();
  add_session_options(*app, options->session);
  commands.push_back({app, [options] {
                        parallel::install_signal_handlers();
                        return parallel::run_session(options->session, [&](parallel::Session& session) {
                          return convert_model(session, *options);
                        });
                      }});
}

}  // namespace bathys::apps
