// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "convert/inspect.hpp"
#include "core/exit_code.hpp"
#include "io/output.hpp"

#include <memory>
#include <string>

namespace bathys::apps {

// bathys inspect SHARD_DIR [--json]: what a folder of shards holds.
void add_inspect(CLI::App& program, Commands& commands) {
  CLI::App* const app =
      program.add_subcommand("inspect", "Say what a folder of shards holds, without reading the weights");
  struct Options {
    std::string shards;
    bool json = false;
    double memory_gib = 0;
  };
  const auto options = std::make_shared<Options>();
  app->add_option("SHARD_DIR", options->shards, "folder of shards")->required();
  app->add_flag("--json", options->json, "one JSON object, with every dataset");
  app->add_option("--memory", options->memory_gib, "GiB of a rank: say in which layouts the weights fit")
      ->check(CLI::PositiveNumber);
  commands.push_back({app, [options] {
                        io::Output out;
                        std::string text = options->json ? convert::inspect_json(options->shards, options->memory_gib)
                                                         : convert::inspect_text(options->shards, options->memory_gib);
                        if (!text.ends_with('\n')) text += '\n';
                        out.write(text);
                        out.finish();
                        return static_cast<int>(ExitCode::ok);
                      }});
}

}  // namespace bathys::apps
