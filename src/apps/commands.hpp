// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace bathys::parallel {
struct SessionOptions;
}

namespace bathys::apps {

// One sub-command: its options, and what it does once they are read.
struct Command {
  CLI::App* options = nullptr;
  std::function<int()> run;  // returns the exit code; may throw Error
};
using Commands = std::vector<Command>;

// Each declares one sub-command; its file says what it does.
void add_convert(CLI::App& program, Commands& commands);
void add_synth(CLI::App& program, Commands& commands);
void add_verify(CLI::App& program, Commands& commands);
void add_inspect(CLI::App& program, Commands& commands);
void add_tokenize(CLI::App& program, Commands& commands);
void add_eval(CLI::App& program, Commands& commands);
void add_compare(CLI::App& program, Commands& commands);
void add_bench(CLI::App& program, Commands& commands);
void add_bench_engine(CLI::App& bench, Commands& commands);  // below bench
void add_generate(CLI::App& program, Commands& commands);
void add_version(CLI::App& program, Commands& commands);

// What a bench printed to std::cout has arrived, or Error(stopped).
void flush_output();

// "0.1.0 (commit abc)".
[[nodiscard]] std::string program_version();

// Declares `--name on|off` with a default, shown in the help.
void add_switch(CLI::App& options, const std::string& name, bool& value, const std::string& help);

// Declares what commands on any number of ranks have in common: --single-process, --watchdog-seconds.
void add_session_options(CLI::App& app, parallel::SessionOptions& session);

}  // namespace bathys::apps
