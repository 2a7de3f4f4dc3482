// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/json_lines.hpp"
#include "apps/tokenize_command.hpp"
#include "apps/validators.hpp"
#include "core/error.hpp"
#include "core/shown.hpp"
#include "eval/json_text.hpp"
#include "eval/request.hpp"
#include "io/file.hpp"
#include "io/output.hpp"
#include "io/shard_index.hpp"
#include "tokenizer/answer_parser.hpp"
#include "tokenizer/prompt.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace bathys::apps {
namespace {

struct Options {
  std::string model, file = "-";
  bool chat = false, answer = false;
  TokenizeOptions tokenize;
};

// Bodies of the chat interface have members that do not shape the prompt; but one that is nearly spelled as one that
// does would be passed over in silence.
void refuse_misspelled(const JsonLine& line) {
  static const std::vector<std::string> names = {"messages",      "thinking", "effort",      "reasoning_effort",
                                                 "drop_thinking", "tools",    "tool_choice", "response_format"};
  if (!line.body.is_object()) return;
  for (const auto& [key, value] : line.body.items()) {
    if (key.size() > 40 || std::find(names.begin(), names.end(), key) != names.end()) continue;
    const std::string near = nearest_name(key, names);
    require(near.empty(), ExitCode::bad_requests, "{}: {} is unknown; did you mean {}?", line.name(), shown(key), near);
  }
}

// Each line is a chat ({"messages": [...], ...}); the answer is its prompt's ids as JSON, or its prompt's text with
// --decode.
void tokenize_chats(const tokenizer::Tokenizer& tokenizer, const Options& options, std::string_view input,
                    io::Output& out) {
  for_each_json_line(input, options.file, [&](const JsonLine& line) {
    refuse_misspelled(line);
    try {
      const eval::TokenIds ids = tokenizer::encode_prompt(tokenizer, tokenizer::read_conversation(line.body));
      out.print("{}\n", options.tokenize.decode
                            ? eval::json_string(tokenizer.decode(ids, options.tokenize.skip_special))
                            : eval::json_integers(ids));
    } catch (const tokenizer::PromptError& error) {
      fail(ExitCode::bad_requests, "{}: {}: {}", line.name(), error.code(), error.what());
    }
  });
  out.finish();
}

// Each line is {"output": text, "thinking": true|false}; the answer is what the output says.
void parse_answers(const Options& options, std::string_view input, io::Output& out) {
  for_each_json_line(input, options.file, [&](const JsonLine& line) {
    JsonObject fields(line.body, line.name(), ExitCode::bad_requests);
    const std::string output = fields.string("output");
    const bool thinking = fields.boolean_or("thinking", true);
    fields.finish();
    const tokenizer::Answer answer =
        tokenizer::parse_answer(output, thinking ? tokenizer::AnswerStart::reasoning : tokenizer::AnswerStart::content);
    Json calls = Json::array();
    for (const tokenizer::AnsweredCall& call : answer.calls) {
      calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
    }
    out.print("{}\n", Json{{"reasoning", answer.reasoning}, {"content", answer.content}, {"calls", calls}}.dump());
  });
  out.finish();
}

void run(const Options& options) {
  const tokenizer::Tokenizer tokenizer = open_tokenizer(options.model);
  const std::string input = io::read_stream(options.file);
  io::Output out;
  if (options.answer) {
    parse_answers(options, input, out);
  } else if (options.chat) {
    tokenize_chats(tokenizer, options, input, out);
  } else {
    run_tokenize(tokenizer, options.tokenize, input, options.file, out);
  }
}

}  // namespace

tokenizer::Tokenizer open_tokenizer(const std::string& model) {
  require(!model.empty(), ExitCode::usage, "--model is empty, expected a folder of shards or a tokenizer.json");
  if (!std::filesystem::is_directory(model)) return tokenizer::Tokenizer::from_file(model);
  return tokenizer::Tokenizer::from_json(io::read_shard_index(model).tokenizer_json, model + ": tokenizer.json");
}

// bathys tokenize --model SHARD_DIR|TOKENIZER.json [--json] [--decode] [--chat | --answer] [FILE]
void add_tokenize(CLI::App& program, Commands& commands) {
  CLI::App* const app = program.add_subcommand("tokenize", "Text to token ids and back");
  const auto options = std::make_shared<Options>();
  app->add_option("--model", options->model, "folder of shards, or a tokenizer.json")->required();
  CLI::Option* const json = app->add_flag("--json", options->tokenize.json,
                                          "JSON Lines in and out: strings to lists of ids (with --decode: back)");
  CLI::Option* const decode = app->add_flag("--decode", options->tokenize.decode, "ids to text");
  CLI::Option* const plain =
      app->add_flag("--plain", options->tokenize.plain, "spellings of added tokens are plain text")->excludes(decode);
  CLI::Option* const skip =
      app->add_flag("--skip-special", options->tokenize.skip_special, "decoding leaves out special tokens")
          ->needs(decode);
  CLI::Option* const chat =
      app->add_flag("--chat", options->chat,
                    "each line is a chat body with messages; answers with the ids of its prompt (--decode: its text)")
          ->excludes(json)
          ->excludes(plain);
  app->add_flag(
         "--answer", options->answer,
         "each line is {\"output\": a model's answer to a chat, \"thinking\": whether it thinks (default true)}; "
         "answers with its reasoning, content and calls")
      ->excludes(chat)
      ->excludes(json)
      ->excludes(decode)
      ->excludes(plain)
      ->excludes(skip);
  app->add_option("--threads", options->tokenize.threads, "threads of --json, which encodes many texts (default 1)")
      ->check(whole_number(1, kMaxThreads))
      ->needs(json);
  app->add_option("FILE", options->file, "input; - or nothing: standard input");
  commands.push_back({app, [options] {
                        try {
                          run(*options);
                        } catch (const std::bad_alloc&) {
                          fail(ExitCode::internal,
                               "out of memory: the input, its ids and {} threads do not fit; split {}, use fewer "
                               "--threads or raise the limit of memory",
                               options->tokenize.threads, options->file);
                        }
                        return static_cast<int>(ExitCode::ok);
                      }});
}

}  // namespace bathys::apps
