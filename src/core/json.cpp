// SPDX-License-Identifier: Apache-2.0
#include "core/json.hpp"

#include "core/error.hpp"
#include "core/json_sax.hpp"
#include "core/shown.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace bathys {
namespace {

constexpr std::size_t kShownBytes = 60;

// Builds the value and refuses a key that an open object already has, and nesting beyond a limit, while parsing: the
// plain DOM parser would keep the last of two keys in silence, recurse without bound, and look through all members of
// an object for each that comes, which takes minutes where a line has a million.
class StrictBuilder : public JsonSax<Json> {
 public:
  StrictBuilder(Json& root, JsonLimits limits) : root_(root), limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(v); }
  bool number_unsigned(number_unsigned_t v) override { return add(v); }
  bool number_float(number_float_t v, const string_t& /*text*/) override { return add(v); }
  bool string(string_t& v) override { return add(std::move(v)); }
  bool binary(binary_t& v) override { return add(std::move(v)); }
  bool start_object(std::size_t /*n*/) override {
    if (limits_.unique_keys) keys_.emplace_back();
    return open(Json::object());
  }
  bool key(string_t& v) override {
    if (limits_.unique_keys && !keys_.back().insert(v).second) {
      return refuse_as(fmt::format("the key \"{}\" stands twice in one object", repair_utf8(v.substr(0, kShownBytes))));
    }
    key_ = std::move(v);
    return true;
  }
  bool end_object() override {
    if (limits_.unique_keys) keys_.pop_back();
    return close();
  }
  bool start_array(std::size_t /*n*/) override { return open(Json::array()); }
  bool end_array() override { return close(); }

 private:
  // The value, in its place.
  template <class Value>
  Json& place(Value&& value) {
    if (open_.empty()) return root_ = Json(std::forward<Value>(value));
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& elements = parent.get_ref<Json::array_t&>();
      return elements.emplace_back(std::forward<Value>(value));
    }
    if (!limits_.unique_keys) return parent[key_] = Json(std::forward<Value>(value));
    auto& members = parent.get_ref<Json::object_t&>();  // a vector of pairs
    return members.emplace_back(std::move(key_), Json(std::forward<Value>(value))).second;
  }
  template <class Value>
  bool add(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }
  bool open(Json empty) {
    if (std::ssize(open_) == limits_.max_depth)
      return refuse_as(fmt::format("nested more than {} deep", limits_.max_depth));
    open_.push_back(&place(std::move(empty)));  // stays where it is: its parent grows no more until it is closed
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json& root_;
  JsonLimits limits_;
  std::string key_;
  std::vector<std::set<std::string>> keys_;
  std::vector<Json*> open_;
};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j + 1] + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string shown(const Json& value, std::size_t limit) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > limit) {
    text = repair_utf8(text.substr(0, limit)) + "...";
  }
  return text;
}

std::string printable(std::string_view text, std::size_t limit) {
  const std::string_view ending = text.size() > limit ? "..." : "";
  const std::string whole = repair_utf8(text.substr(0, limit));
  std::string out;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto byte = static_cast<unsigned char>(whole[i]);
    const auto next = static_cast<unsigned char>(i + 1 < whole.size() ? whole[i + 1] : 0);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (byte == 0xc2 && next < 0xa0) {  // U+0080 to U+009F, which some terminals obey too
      out += fmt::format("\\x{:02x}", next);
      ++i;
    } else {
      out += whole[i];
    }
  }
  return out.append(ending);
}

std::string json_error(std::size_t position, std::string_view what) {
  const std::size_t colon = what.find(": ", what.find("column"));
  if (colon != std::string_view::npos) what.remove_prefix(colon + 2);
  constexpr std::string_view kRead = "; last read: '";
  const std::size_t read = what.find(kRead);
  if (read == std::string_view::npos) {
    if (const std::size_t name = what.find("] "); what.starts_with('[') && name != std::string_view::npos)
      what.remove_prefix(name + 2);  // of the library's exception
    return fmt::format("not JSON at byte {}: {}", position, printable(what, 2 * kShownBytes));
  }
  std::string_view last = what.substr(read + kRead.size());  // all of a string, however long
  last = last.substr(0, last.rfind('\''));
  if (last.size() > kShownBytes) last.remove_prefix(last.size() - kShownBytes);
  return fmt::format("not JSON at byte {}: {}; last read: {}", position, what.substr(0, read),
                     shown(Json(last), last.size() * 6 + 2));
}

std::string repair_utf8(std::string_view text) {
  // The JSON library replaces what is invalid, when asked, as it writes.
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

std::optional<std::string> try_parse_json(std::string_view text, Json& out, JsonLimits limits) {
  out = Json();
  return StrictBuilder(out, limits).run(text);
}

Json parse_json(std::string_view text, std::string_view what, ExitCode code) {
  Json value;
  if (const auto cause = try_parse_json(text, value)) fail(code, "{}: {}", what, *cause);
  return value;
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& name : names) {
    // Their distance is at least that of their lengths.
    if (std::max(word.size(), name.size()) - std::min(word.size(), name.size()) >= best_distance) continue;
    const std::size_t distance = edit_distance(word, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

JsonObject::JsonObject(const Json& object, std::string path, ExitCode code)
    : object_(&object), path_(std::move(path)), code_(code) {
  require(object.is_object(), code_, "{} is {}, expected an object", path_, shown(object));
}

std::string JsonObject::full(std::string_view key) const {
  // The outermost path is a file's name: "config.json: dim", below it "config.json: text_config.dim".
  const bool outermost = path_.find(": ") == std::string::npos;
  return fmt::format("{}{}{}", path_, outermost ? ": " : ".", key);
}

bool JsonObject::has(std::string_view key) const { return object_->contains(std::string(key)); }

bool JsonObject::is_null(std::string_view key) const { return has(key) && object_->at(std::string(key)).is_null(); }

const Json& JsonObject::member(std::string_view key, std::string_view expected) {
  known_.emplace(key);
  const auto found = object_->find(std::string(key));
  require(found != object_->end(), code_, "{} is missing, expected {}", full(key), expected);
  return *found;
}

void JsonObject::refuse(std::string_view key, std::string_view expected) const {
  const auto found = object_->find(std::string(key));
  fail(code_, "{} is {}, expected {}", full(key), found == object_->end() ? "missing" : shown(*found), expected);
}

std::int64_t JsonObject::integer(std::string_view key) {
  const Json& value = member(key, "an integer");
  if (!value.is_number_integer()) refuse(key, "an integer");
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    refuse(key, "an integer below 2^63");
  }
  return value.get<std::int64_t>();
}

double JsonObject::number(std::string_view key) {
  const Json& value = member(key, "a number");
  if (!value.is_number()) refuse(key, "a number");
  return value.get<double>();
}

bool JsonObject::boolean(std::string_view key) {
  const Json& value = member(key, "true or false");
  if (!value.is_boolean()) refuse(key, "true or false");
  return value.get<bool>();
}

std::string JsonObject::string(std::string_view key) {
  const Json& value = member(key, "a string");
  if (!value.is_string()) refuse(key, "a string");
  return value.get<std::string>();
}

std::vector<std::int64_t> JsonObject::integers(std::string_view key) {
  const Json& value = member(key, "a list of integers");
  if (!value.is_array()) refuse(key, "a list of integers");
  std::vector<std::int64_t> out;
  out.reserve(value.size());
  for (const Json& element : value) {
    if (!element.is_number_integer() ||
        (element.is_number_unsigned() && element.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))) {
      refuse(key, "a list of integers");
    }
    out.push_back(element.get<std::int64_t>());
  }
  return out;
}

std::vector<std::string> JsonObject::strings(std::string_view key) {
  const Json& value = member(key, "a list of strings");
  if (!value.is_array()) refuse(key, "a list of strings");
  std::vector<std::string> out;
  out.reserve(value.size());
  for (const Json& element : value) {
    if (!element.is_string()) refuse(key, "a list of strings");
    out.push_back(element.get<std::string>());
  }
  return out;
}

JsonObject JsonObject::object(std::string_view key) {
  const Json& value = member(key, "an object");
  return JsonObject(value, full(key), code_);
}

const Json& JsonObject::any(std::string_view key) { return member(key, "a value"); }

void JsonObject::ignore(std::string_view key) { known_.emplace(key); }

std::int64_t JsonObject::integer_or(std::string_view key, std::int64_t fallback) {
  ignore(key);
  return has(key) ? integer(key) : fallback;
}
double JsonObject::number_or(std::string_view key, double fallback) {
  ignore(key);
  return has(key) ? number(key) : fallback;
}
bool JsonObject::boolean_or(std::string_view key, bool fallback) {
  ignore(key);
  return has(key) ? boolean(key) : fallback;
}
std::string JsonObject::string_or(std::string_view key, std::string fallback) {
  ignore(key);
  return has(key) ? string(key) : std::move(fallback);
}
std::vector<std::int64_t> JsonObject::integers_or(std::string_view key, std::vector<std::int64_t> fallback) {
  ignore(key);
  return has(key) ? integers(key) : std::move(fallback);
}

void JsonObject::finish() const {
  for (const auto& [key, value] : object_->items()) {
    if (known_.contains(key)) continue;
    const std::string near = nearest_name(key, {known_.begin(), known_.end()});
    fail(code_, "{} is unknown{}", full(repair_utf8(key.substr(0, kShownBytes))),
         near.empty() ? std::string() : fmt::format("; did you mean {}?", near));
  }
}

}  // namespace bathys
