// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "io/output.hpp"
#include "parallel/agree.hpp"

#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

namespace bathys::apps {
namespace {

// Ranks that a launcher started all read the same command line: the first one speaks for them.
bool speaks() {
  const char* const rank = std::getenv("PMIX_RANK");
  return std::getenv("PMIX_NAMESPACE") == nullptr || rank == nullptr || std::string_view(rank) == "0";
}

// The option nearest to one that does not exist, as ", did you mean --model?".
std::string suggestion(const CLI::App& program, const std::string& word) {
  std::vector<std::string> names;
  const CLI::App* scope = &program;
  for (const CLI::App* chosen : program.get_subcommands()) scope = chosen;
  for (const CLI::Option* option : scope->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  if (scope == &program) {
    for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(command->get_name());
  }
  const std::string near = nearest_name(word.substr(0, word.find('=')), names);
  return near.empty() ? "see --help" : "did you mean " + near + "?";
}

// Prints what CLI11 has to say: help to standard output, everything else as the cause line.  Its codes of its own
// become 0 or 2.
int answer_parse_error(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    const CLI::App* scope = &program;
    for (const CLI::App* chosen : program.get_subcommands()) scope = chosen;
    io::Output out;
    out.write(scope == &program ? program.help() : scope->help("bathys"));
    out.finish();
    return static_cast<int>(ExitCode::ok);
  }
  std::string text = error.what();
  const std::vector<std::string> unknown = program.remaining(true);
  if (!unknown.empty()) {  // also behind a missing option: the misspelt one is the cause
    text = fmt::format("{} is not known; {}", unknown.front(), suggestion(program, unknown.front()));
  } else {
    text += "; see --help";
  }
  if (speaks()) log::cause(text);
  return static_cast<int>(ExitCode::usage);
}

int run(int argc, char** argv) {
  // 1. The program and its commands.
  CLI::App program(
      "bathys: DeepSeek-V4.1 over large offline evaluation sets; a score never depends on how it was computed",
      "bathys");
  program.require_subcommand(1);
  Commands commands;
  add_convert(program, commands);
  add_synth(program, commands);
  add_verify(program, commands);
  add_inspect(program, commands);
  add_tokenize(program, commands);
  add_eval(program, commands);
  add_compare(program, commands);
  add_generate(program, commands);
  add_bench(program, commands);
  add_version(program, commands);

  // 2. The command line.
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return answer_parse_error(program, error);
  }

  // 3. The one command that was given.
  for (const Command& command : commands) {
    if (command.options->parsed()) return command.run();
  }
  return static_cast<int>(ExitCode::usage);
}

}  // namespace
}  // namespace bathys::apps

// Commands that need ranks build their session inside, outside of this try (parallel::run_session): what arrives here
// concerns one process.
int main(int argc, char** argv) {
  bathys::io::guard_standard_descriptors();
  try {
    return bathys::apps::run(argc, argv);
  } catch (...) {
    const bathys::parallel::Cause cause = bathys::parallel::cause_of(std::current_exception());
    bathys::log::cause(cause.text);
    return static_cast<int>(cause.code);
  }
}
