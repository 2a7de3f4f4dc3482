// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/conversation.hpp"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::tokenizer {

// A call in an assistant's answer.  Values are what the model wrote, never reformatted: a value that it calls JSON may
// be none, a name may occur twice, and a call that the answer's end cut off is cut off here.
struct AnsweredCall {
  std::string name;       // may be one that no tool has
  std::string arguments;  // {"name": value, ...}; empty where the answer ended before any
};

struct Answer {
  std::string reasoning;
  std::string content;
  std::vector<AnsweredCall> calls;
};

// Where in an answer the prompt stopped.
enum class AnswerStart {
  content,              // after </think>
  reasoning,            // after <think>
  calls,                // after the opening tag of calls
  continued_content,    // in a prefix: line breaks at the beginning belong to it
  continued_reasoning,  // in the reasoning of a prefix
};

AnswerStart answer_start(const Conversation& conversation);

// Takes an assistant's output apart, in pieces of any size, as DeepSeek's own package does:
//   * reasoning ends at the first </think>, or where calls begin; later </think> vanish from the content;
//   * line breaks at the beginning of reasoning and content, before that </think> and before calls are no part of them;
//   * calls begin at "<｜DSML｜" (with `with_calls`), and nothing after them counts;
//   * a value ends at "</｜DSML｜"; with string="true" it is a string, else JSON, copied as it is.
// Different from that package: names of arguments are escaped and end at the attribute that follows, so that a name
// with quotes or spaces stays one and the arguments of whole calls stay JSON; a name that is cut off is left out.
class AnswerParser {
 public:
  explicit AnswerParser(AnswerStart start, bool with_calls = true);

  void feed(std::string_view text);
  // Takes what was held back as it might have been the beginning of a tag, and gives the answer away.
  Answer finish();

 private:
  enum class State { reasoning, content, calls, call_name, call, argument_name, argument, done };

  bool step();
  bool read_text(std::string& out);
  bool read_until_call();
  bool read_call_name();
  bool read_until_argument();
  bool read_argument_name();
  bool read_argument();
  void add_text(std::string& out, std::string_view text);
  void flush_breaks(std::string& out);
  void begin_argument(std::string_view name, bool is_string);
  void add_value(std::string_view text);

  struct Found;
  [[nodiscard]] Found find(std::initializer_list<std::string_view> tags) const;
  [[nodiscard]] std::string_view rest() const { return std::string_view(held_).substr(at_); }
  void skip(std::size_t size);

  State state_;
  bool with_calls_;
  bool at_beginning_;         // line breaks are dropped
  bool is_string_ = false;    // the argument's value is
  std::size_t n_breaks_ = 0;  // line breaks that count only if text comes after them
  std::string held_;          // input; before at_ it is done with, from there to scanned_ no tag begins
  std::size_t at_ = 0;
  std::size_t scanned_ = 0;
  Answer answer_;
};

// The answer that the whole `output` is.
Answer parse_answer(std::string_view output, AnswerStart start, bool with_calls = true);

}  // namespace bathys::tokenizer
