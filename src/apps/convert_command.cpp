// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "convert/convert.hpp"
#include "core/exit_code.hpp"
#include "core/log.hpp"

#include <memory>
#include <string>

namespace bathys::apps {

// bathys convert CHECKPOINT_DIR SHARD_DIR: a released checkpoint as HDF5 shards.
void add_convert(CLI::App& program, Commands& commands) {
  CLI::App* const app = program.add_subcommand(
      "convert", "Convert a released checkpoint folder to HDF5 shards; stopped, the same command goes on");
  struct Options {
    std::string checkpoint, shards;
  };
  const auto options = std::make_shared<Options>();
  app->add_option("CHECKPOINT_DIR", options->checkpoint,
                  "folder with config.json, tokenizer.json and safetensors files")
      ->required();
  app->add_option("SHARD_DIR", options->shards, "folder to write")->required();
  commands.push_back({app, [options] {
                        const convert::ConvertReport report = convert::convert(options->checkpoint, options->shards);
                        log::info("convert",
                                  "files={} files_kept={} datasets={} tensors={} bytes_written={} seconds={:.2f}",
                                  report.files, report.files_kept, report.datasets, report.tensors,
                                  report.bytes_written, report.seconds);
                        return static_cast<int>(ExitCode::ok);
                      }});
}

}  // namespace bathys::apps
