// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "convert/verify.hpp"
#include "core/log.hpp"
#include "parallel/session.hpp"
#include "parallel/signals.hpp"
#include "parallel/watchdog.hpp"

#include <memory>
#include <string>

namespace bathys::apps {
namespace {

struct Options {
  std::string shards;
  convert::VerifyOptions verify;
  parallel::SessionOptions session;
};

ExitCode verify_shards(parallel::Session& session, const Options& options) {
  convert::VerifyOptions verify = options.verify;
  verify.alive = [&] { session.watchdog().progress("verify"); };
  const convert::VerifyReport report = convert::verify(session.world(), options.shards, verify);
  log::info("verify", "files={} datasets={} bytes={} bytes_read={} seconds={:.2f} rate_gib_s={:.2f} result=good",
            report.files, report.datasets, report.bytes, report.bytes_read, report.seconds,
            static_cast<double>(report.bytes_read) / 0x1p30 / report.seconds);
  return ExitCode::ok;
}

}  // namespace

// bathys verify SHARD_DIR: every byte of the shards against its checksum.
void add_verify(CLI::App& program, Commands& commands) {
  CLI::App* const app = program.add_subcommand(
      "verify", "Check a folder of shards: structure, every byte, and on request against the checkpoint");
  const auto options = std::make_shared<Options>();
  app->add_option("SHARD_DIR", options->shards, "folder of shards")->required();
  app->add_option("--checkpoint", options->verify.checkpoint, "checkpoint folder to compare the payload with");
  add_switch(*app, "--checksums", options->verify.checksums, "read every byte; off: structure alone");
  add_session_options(*app, options->session);
  commands.push_back({app, [options] {
                        parallel::install_signal_handlers();
                        return parallel::run_session(options->session, [&](parallel::Session& session) {
                          return verify_shards(session, *options);
                        });
                      }});
}

}  // namespace bathys::apps
