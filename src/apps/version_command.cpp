// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/validators.hpp"
#include "core/exit_code.hpp"
#include "io/output.hpp"
#include "parallel/session.hpp"
#include "parallel/watchdog.hpp"

#include <string>

#include <fmt/format.h>

namespace bathys::apps {

std::string program_version() { return BATHYS_VERSION " (commit " BATHYS_COMMIT ")"; }

// bathys version
void add_version(CLI::App& program, Commands& commands) {
  CLI::App* const app = program.add_subcommand("version", "Print the program's version");
  commands.push_back({app, [] {
                        io::Output out;
                        out.print("bathys {}\n", program_version());
                        out.finish();
                        return static_cast<int>(ExitCode::ok);
                      }});
}

void add_switch(CLI::App& options, const std::string& name, bool& value, const std::string& help) {
  options
      .add_option_function<std::string>(
          name, [&value](const std::string& text) { value = text == "on"; },
          help + (value ? " (default on)" : " (default off)"))
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("on|off");
}

void add_session_options(CLI::App& app, parallel::SessionOptions& session) {
  app.add_flag("--single-process", session.single_process,
               "one process is meant, although the Slurm step has more tasks");
  app.add_option(
         "--watchdog-seconds", session.watchdog_s,
         fmt::format("end a job in which a rank hangs for so long, in work on files {:g} times as long; 0: never",
                     parallel::kFilesFactor))
      ->check(number(0))
      ->capture_default_str();
}

}  // namespace bathys::apps
