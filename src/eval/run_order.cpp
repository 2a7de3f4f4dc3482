// SPDX-License-Identifier: Apache-2.0
#include "eval/run_order.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <variant>

namespace bathys::eval {
namespace {

// Contexts with so many common bytes at their beginning are a family: some 16 tokens.
constexpr std::size_t kFamilyBytes = 64;
constexpr std::size_t kBytesPerToken = 4;  // of ordinary text; only the order depends on it

// Ids as bytes of fixed width, highest first: they compare and share beginnings as the ids do.
std::string bytes_of(const TokenIds& ids) {
  std::string out;
  out.reserve(ids.size() * kBytesPerToken);
  for (const std::int32_t id : ids) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((id >> shift) & 0xff);
  }
  return out;
}

// What a context begins with: its own text where it is one, else bytes that are put into `made`.
std::string_view beginning_of(const Context& context, std::deque<std::string>& made) {
  if (const auto* text = std::get_if<std::string>(&context)) return *text;
  if (const auto* ids = std::get_if<TokenIds>(&context)) return made.emplace_back(bytes_of(*ids));
  const Json& body = std::get<Messages>(context).body;
  return made.emplace_back(body.contains("messages") ? body["messages"].dump() : body.dump());
}

struct Entry {
  std::string_view beginning;
  std::size_t length = 0;  // bytes that count as its work
  TodoItem item;
};

Entry measure(const Request& request, TodoItem item, std::deque<std::string>& made) {
  Entry entry;
  if (const auto* score = std::get_if<Loglikelihood>(&request.body)) {
    entry.beginning = beginning_of(score->context, made);
    entry.length = entry.beginning.size();
    std::visit(
        [&](const auto& list) {
          for (const auto& continuation : list) entry.length += continuation.size();
        },
        score->continuations);
  } else if (const auto* rolling = std::get_if<Rolling>(&request.body)) {
    // Scored from its first token on, so it shares nothing: no beginning to sort by.
    entry.length = std::visit([](const auto& text) { return text.size(); }, rolling->text);
    if (std::holds_alternative<TokenIds>(rolling->text)) entry.length *= kBytesPerToken;
  } else {
    const auto& generate = std::get<Generate>(request.body);
    entry.beginning = beginning_of(generate.context, made);
    entry.length = entry.beginning.size() +
                   static_cast<std::size_t>(std::max<std::int64_t>(generate.max_gen_toks, 0)) * kBytesPerToken;
  }
  entry.item = std::move(item);
  return entry;
}

bool same_family(std::string_view a, std::string_view b) {
  return a.size() >= kFamilyBytes && b.size() >= kFamilyBytes && a.substr(0, kFamilyBytes) == b.substr(0, kFamilyBytes);
}

// Answers that one item of the request may have: each has the context's tokens for itself.
std::size_t most_repeats(const Entry& entry) {
  const std::size_t context = std::max<std::size_t>(1, entry.beginning.size() / kBytesPerToken);
  return std::clamp(static_cast<std::size_t>(kPlentyOfTokens) / context, kLeastRepeats, kMostRepeats);
}

void append_parts(Entry entry, std::vector<TodoItem>& todo) {
  const std::size_t most = most_repeats(entry);
  const std::vector<std::int32_t>& repeats = entry.item.second;
  if (repeats.size() <= most) {
    todo.push_back(std::move(entry.item));
    return;
  }
  for (auto begin = repeats.begin(); begin != repeats.end();) {
    const auto end = begin + std::min(static_cast<std::ptrdiff_t>(most), repeats.end() - begin);
    todo.emplace_back(entry.item.first, std::vector<std::int32_t>(begin, end));
    begin = end;
  }
}

}  // namespace

void sort_for_running(const std::vector<Request>& requests, std::vector<TodoItem>& todo) {
  std::vector<Entry> entries;
  std::deque<std::string> made;
  entries.reserve(todo.size());
  for (TodoItem& item : todo) {
    const Request& request = requests[item.first];
    entries.push_back(measure(request, std::move(item), made));
  }
  // Strings compare bytes as unsigned characters.
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.beginning < b.beginning; });

  struct Family {
    std::size_t begin = 0, end = 0, longest = 0, first_request = 0;
  };
  std::vector<Family> families;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i == 0 || !same_family(entries[i - 1].beginning, entries[i].beginning))
      families.push_back({i, i, 0, entries[i].item.first});
    Family& family = families.back();
    family.end = i + 1;
    family.longest = std::max(family.longest, entries[i].length);
    family.first_request = std::min(family.first_request, entries[i].item.first);
  }
  std::sort(families.begin(), families.end(), [](const Family& a, const Family& b) {
    return a.longest != b.longest ? a.longest > b.longest : a.first_request < b.first_request;
  });
  todo.clear();
  for (const Family& family : families) {
    for (std::size_t i = family.begin; i < family.end; ++i) append_parts(std::move(entries[i]), todo);
  }
}

}  // namespace bathys::eval
