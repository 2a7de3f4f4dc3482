// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/run_options.hpp"
#include "apps/validators.hpp"
#include "convert/convert.hpp"
#include "convert/synth.hpp"
#include "core/log.hpp"
#include "parallel/agree.hpp"
#include "parallel/session.hpp"
#include "parallel/signals.hpp"
#include "parallel/watchdog.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace bathys::apps {
namespace {

struct Options {
  std::string config, out;
  std::string to = "shards";
  convert::SynthOptions synth;
  parallel::SessionOptions session;
};

ExitCode synth(parallel::Session& session, const Options& options) {
  const convert::SourceModel model =
      parallel::agree(session.world(), [&] { return convert::synthesize(options.config, options.synth); });
  const auto alive = [&] { session.watchdog().progress("synth"); };
  convert::ReleaseReport report;
  if (options.to == "shards") {
    convert::ConvertOptions how;
    how.alive = alive;
    const convert::ConvertReport shards = convert::convert(session.world(), model, options.out, how);
    report = {shards.files, shards.files_kept, shards.bytes_written, shards.seconds};
  } else {
    convert::ReleaseOptions how;
    how.event = "synth";
    how.alive = alive;
    report = convert::write_checkpoint(session.world(), model, options.out, how);
  }
  log::info("synth", "format={} seed={} tensors={} files={} files_kept={} bytes_written={} seconds={:.2f}", options.to,
            options.synth.seed, model.n_tensors(), report.files, report.files_kept, report.bytes_written,
            report.seconds);
  return ExitCode::ok;
}

}  // namespace

// bathys synth CONFIG OUT_DIR: a model of any config that nobody trained.
void add_synth(CLI::App& program, Commands& commands) {
  CLI::App* const app = program.add_subcommand(
      "synth", "Write a model of any config with synthetic weights; stopped, the same command goes on");
  const auto options = std::make_shared<Options>();
  app->add_option("CONFIG", options->config, "config of the model, in either form")->required();
  app->add_option("OUT_DIR", options->out, "folder to write")->required();
  app->add_option("--to", options->to, "shards: HDF5, ready to run; safetensors: a checkpoint in the released layout")
      ->check(CLI::IsMember({"shards", "safetensors"}))
      ->capture_default_str();
  app->add_option("--seed", options->synth.seed, "of the weights")->check(whole_number(0))->capture_default_str();
  app->add_option("--tokenizer", options->synth.tokenizer,
                  "tokenizer.json of the model (default: one made for the config, a token for each byte)");
  add_session_options(*app, options->session);
  commands.push_back({app, [options] {
                        parallel::install_signal_handlers();
                        return parallel::run_session(
                            options->session, [&](parallel::Session& session) { return synth(session, *options); });
                      }});
}

}  // namespace bathys::apps
