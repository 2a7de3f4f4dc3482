// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/run_options.hpp"
#include "convert/convert.hpp"
#include "convert/synth.hpp"
#include "core/exit_code.hpp"
#include "core/log.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace bathys::apps {
namespace {

struct Options {
  std::string config, out;
  std::string format = "shards";
  convert::SynthOptions synth;
};

int synth(const Options& options) {
  const convert::SourceModel model = convert::synthesize(options.config, options.synth);
  convert::SynthReport report;
  if (options.format == "shards") {
    const convert::ConvertReport shards = convert::convert(model, options.out);
    report = {shards.files, shards.files_kept, shards.bytes_written, shards.seconds};
  } else {
    report = convert::write_checkpoint(model, options.out);
  }
  log::info("synth", "format={} seed={} tensors={} files={} files_kept={} bytes_written={} seconds={:.2f}",
            options.format, options.synth.seed, model.n_tensors(), report.files, report.files_kept,
            report.bytes_written, report.seconds);
  return static_cast<int>(ExitCode::ok);
}

}  // namespace

// bathys synth CONFIG OUT_DIR: a model of any config that nobody trained.
void add_synth(CLI::App& program, Commands& commands) {
  CLI::App* const app = program.add_subcommand(
      "synth", "Write a model of any config with synthetic weights; stopped, the same command goes on");
  const auto options = std::make_shared<Options>();
  app->add_option("CONFIG", options->config, "config of the model, in either form")->required();
  app->add_option("OUT_DIR", options->out, "folder to write")->required();
  app->add_option("--format", options->format,
                  "shards: HDF5, ready to run; safetensors: a checkpoint in the released layout")
      ->check(CLI::IsMember({"shards", "safetensors"}))
      ->capture_default_str();
  app->add_option("--seed", options->synth.seed, "of the weights")->check(whole_seed())->capture_default_str();
  app->add_option("--tokenizer", options->synth.tokenizer,
                  "tokenizer.json of the model (default: one made for the config, a token for each byte)");
  commands.push_back({app, [options] { return synth(*options); }});
}

}  // namespace bathys::apps
