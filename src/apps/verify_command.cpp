// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "convert/verify.hpp"
#include "core/exit_code.hpp"
#include "core/log.hpp"

#include <memory>
#include <string>

namespace bathys::apps {

// bathys verify SHARD_DIR: every byte of the shards against its checksum.
void add_verify(CLI::App& program, Commands& commands) {
  CLI::App* const app = program.add_subcommand(
      "verify", "Check a folder of shards: structure, every byte, and on request against the checkpoint");
  struct Options {
    std::string shards;
    bool checksums = true;
    convert::VerifyOptions verify;
  };
  const auto options = std::make_shared<Options>();
  app->add_option("SHARD_DIR", options->shards, "folder of shards")->required();
  app->add_option("--checkpoint", options->verify.checkpoint, "checkpoint folder to compare the payload with");
  add_switch(*app, "--checksums", options->checksums, "read every byte; off: structure alone");
  commands.push_back({app, [options] {
                        options->verify.checksums = options->checksums;
                        const convert::VerifyReport report = convert::verify(options->shards, options->verify);
                        log::info("verify", "files={} datasets={} bytes={} bytes_read={} seconds={:.2f} result=good",
                                  report.files, report.datasets, report.bytes, report.bytes_read, report.seconds);
                        return static_cast<int>(ExitCode::ok);
                      }});
}

}  // namespace bathys::apps
