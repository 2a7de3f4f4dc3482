// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/answer_parser.hpp"

#include "tokenizer/dsml.hpp"
#include "tokenizer/prompt.hpp"
#include "tokenizer/python_json.hpp"

#include <algorithm>
#include <utility>

namespace bathys::tokenizer {
namespace {

using namespace dsml;

// The name at the beginning of an argument's tag: to the quote before the next attribute.
std::string_view argument_name(std::string_view header) {
  const std::size_t end = header.find("\" ");
  return header.substr(0, end != std::string_view::npos ? end : header.find('"'));
}

// Behind the tag's end; npos where the header has none.
std::size_t value_begin(std::string_view header) {
  const std::size_t end = header.find('>', argument_name(header).size());
  return end == std::string_view::npos ? end : end + 1;
}

bool begins_in_content(AnswerStart start) {
  return start == AnswerStart::content || start == AnswerStart::continued_content;
}

}  // namespace

// Where the first of some tags stands in rest(), or, with an empty tag, where one may begin that is not whole yet.
struct AnswerParser::Found {
  std::size_t at;
  std::string_view tag;
};

AnswerStart answer_start(const Conversation& conversation) {
  if (conversation.must_call) return AnswerStart::calls;
  const std::vector<PromptPart> parts = render_prompt(conversation);
  const auto last = std::find_if(parts.rbegin(), parts.rend(), [](const PromptPart& part) { return part.marker; });
  const bool thinks = last->text == kThink;
  if (conversation.messages.back().prefix) {
    return thinks ? AnswerStart::continued_reasoning : AnswerStart::continued_content;
  }
  return thinks ? AnswerStart::reasoning : AnswerStart::content;
}

AnswerParser::AnswerParser(AnswerStart start, bool with_calls)
    : state_(start == AnswerStart::calls ? State::calls
             : begins_in_content(start)  ? State::content
                                         : State::reasoning),
      with_calls_(with_calls),
      at_beginning_(start == AnswerStart::content || start == AnswerStart::reasoning) {}

void AnswerParser::feed(std::string_view text) {
  if (state_ == State::done) return;
  held_.erase(0, at_);
  scanned_ -= at_;
  at_ = 0;
  held_ += text;
  while (step()) {
  }
}

Answer AnswerParser::finish() {
  switch (state_) {
    case State::reasoning:
    case State::content: {
      std::string& out = state_ == State::content ? answer_.content : answer_.reasoning;
      add_text(out, rest());
      flush_breaks(out);
      break;
    }
    case State::argument_name:
      if (rest().find('"') == std::string_view::npos) break;
      begin_argument(argument_name(rest()), false);
      add_value(rest().substr(std::min(value_begin(rest()), rest().size())));
      break;
    case State::argument:
      add_value(rest());
      break;
    default:
      break;
  }
  state_ = State::done;
  return std::move(answer_);
}

// Goes on by one tag; false where that needs more input.
bool AnswerParser::step() {
  switch (state_) {
    case State::reasoning:
      return read_text(answer_.reasoning);
    case State::content:
      return read_text(answer_.content);
    case State::calls:
      return read_until_call();
    case State::call_name:
      return read_call_name();
    case State::call:
      return read_until_argument();
    case State::argument_name:
      return read_argument_name();
    case State::argument:
      return read_argument();
    case State::done:
      break;
  }
  return false;
}

bool AnswerParser::read_text(std::string& out) {
  const Found found = with_calls_ ? find({kThinkEnd, kTagOpen}) : find({kThinkEnd});
  add_text(out, rest().substr(0, found.at));
  skip(found.at + found.tag.size());
  if (found.tag.empty()) return false;
  if (found.tag == kTagOpen) {
    n_breaks_ = 0;
    state_ = State::calls;
  } else if (state_ == State::reasoning) {
    n_breaks_ = 0;
    at_beginning_ = true;
    state_ = State::content;
  } else {
    flush_breaks(out);
    at_beginning_ = false;
  }
  return true;
}

bool AnswerParser::read_until_call() {
  const Found found = find({kCallName, kCallsClose, kOldCallsClose});
  skip(found.at + found.tag.size());
  if (found.tag.empty()) return false;
  state_ = found.tag == kCallName ? State::call_name : State::done;
  return true;
}

bool AnswerParser::read_call_name() {
  const Found found = find({"\""});
  if (found.tag.empty()) {
    scanned_ = held_.size();
    return false;
  }
  answer_.calls.push_back({std::string(rest().substr(0, found.at)), {}});
  skip(found.at + 1);
  state_ = State::call;
  return true;
}

bool AnswerParser::read_until_argument() {
  const Found found = find({kArgumentName, kTagClose});
  skip(found.at + found.tag.size());
  if (found.tag.empty()) return false;
  if (found.tag == kArgumentName) {
    state_ = State::argument_name;
  } else {
    std::string& arguments = answer_.calls.back().arguments;
    arguments += arguments.empty() ? "{}" : "}";
    state_ = State::calls;
  }
  return true;
}

bool AnswerParser::read_argument_name() {
  const Found found = find({kIsString, kIsJson, kTagClose});
  if (found.tag.empty()) {
    scanned_ = at_ + found.at;
    return false;
  }
  const std::string_view header = rest().substr(0, found.at);
  begin_argument(argument_name(header), found.tag == kIsString);
  if (found.tag == kTagClose) {  // no attribute says what the value is: what is there counts as JSON
    skip(std::min(value_begin(header), found.at));
  } else {
    skip(found.at + found.tag.size());
  }
  state_ = State::argument;
  return true;
}

bool AnswerParser::read_argument() {
  const Found found = find({kTagClose});
  add_value(rest().substr(0, found.at));
  skip(found.at + found.tag.size());
  if (found.tag.empty()) return false;
  if (is_string_) answer_.calls.back().arguments += '"';
  state_ = State::call;
  return true;
}

void AnswerParser::add_text(std::string& out, std::string_view text) {
  if (at_beginning_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  at_beginning_ = false;
  const std::size_t end = text.find_last_not_of('\n') + 1;  // 0 without any
  if (end > 0) {
    flush_breaks(out);
    out += text.substr(0, end);
  }
  n_breaks_ += text.size() - end;
}

void AnswerParser::flush_breaks(std::string& out) {
  out.append(n_breaks_, '\n');
  n_breaks_ = 0;
}

void AnswerParser::begin_argument(std::string_view name, bool is_string) {
  std::string& arguments = answer_.calls.back().arguments;
  arguments += arguments.empty() ? "{\"" : ", \"";
  append_json_escaped(arguments, name);
  arguments += is_string ? "\": \"" : "\": ";
  is_string_ = is_string;
}

void AnswerParser::add_value(std::string_view text) {
  if (is_string_) {
    append_json_escaped(answer_.calls.back().arguments, text);
  } else {
    answer_.calls.back().arguments += text;
  }
}

AnswerParser::Found AnswerParser::find(std::initializer_list<std::string_view> tags) const {
  const std::string_view text = rest();
  for (std::size_t i = std::max(scanned_, at_) - at_; i < text.size(); ++i) {
    const std::string_view here = text.substr(i);
    for (const std::string_view tag : tags) {
      if (here.front() != tag.front()) continue;
      if (here.starts_with(tag)) return {i, tag};
      if (tag.starts_with(here)) return {i, {}};
    }
  }
  return {text.size(), {}};
}

void AnswerParser::skip(std::size_t size) {
  at_ += size;
  scanned_ = at_;
}

Answer parse_answer(std::string_view output, AnswerStart start, bool with_calls) {
  AnswerParser parser(start, with_calls);
  parser.feed(output);
  return parser.finish();
}

}  // namespace bathys::tokenizer
