// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/validators.hpp"
#include "core/exit_code.hpp"
#include "eval/compare.hpp"
#include "io/output.hpp"

#include <memory>
#include <string>

namespace bathys::apps {

// bathys compare A B [--json]: two runs of the same requests, answer by answer.
void add_compare(CLI::App& program, Commands& commands) {
  CLI::App* const app =
      program.add_subcommand("compare", "Say where two runs of the same requests differ, with a paired test");
  struct Options {
    std::string a, b;
    bool json = false;
    std::int64_t changed = 20;
  };
  const auto options = std::make_shared<Options>();
  app->add_option("A", options->a, "run folder (--out of eval)")->required();
  app->add_option("B", options->b, "run folder of the same requests")->required();
  app->add_flag("--json", options->json, "one JSON object, with every changed answer");
  app->add_option("--changed", options->changed, "changed answers to list")
      ->check(whole_number(0))
      ->capture_default_str();
  commands.push_back({app, [options] {
                        const eval::RunComparison comparison = eval::compare_runs(options->a, options->b);
                        io::Output out;
                        out.write(options->json ? eval::to_json(comparison).dump(2) + "\n"
                                                : eval::to_text(comparison, options->changed));
                        out.finish();
                        return static_cast<int>(ExitCode::ok);
                      }});
}

}  // namespace bathys::apps
