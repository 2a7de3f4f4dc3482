// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_file.hpp"

#include "core/error.hpp"
#include "core/json_sax.hpp"
#include "core/shown.hpp"
#include "tokenizer/pretokenizer.hpp"

#include <limits>
#include <optional>
#include <utility>

namespace bathys::tokenizer {
namespace {

constexpr std::size_t kMaxMembers = 64;    // of one object outside the vocabulary; the tree's look-up is linear
constexpr std::size_t kMaxDepth = 32;      // the format needs 6
constexpr std::size_t kMaxContent = 1024;  // bytes of an added token: bounds the matcher's work per character
constexpr std::string_view kLfsMark = "version https://git-lfs.github.com/spec/";

// Takes model.vocab and model.merges out of the event stream and lets the rest build a document tree, in which both are
// null.
class FileReader final : public JsonSax<Json> {
 public:
  FileReader(TokenizerFile& file, Json& tree) : file_(&file), tree_(tree, false) {}

  [[nodiscard]] bool has_vocab() const { return has_vocab_; }
  [[nodiscard]] bool has_merges() const { return has_merges_; }

  bool null() override { return place_ == Place::tree ? tree_.null() : misplaced("null"); }
  bool boolean(bool v) override { return place_ == Place::tree ? tree_.boolean(v) : misplaced("a boolean"); }
  bool number_integer(number_integer_t v) override {
    return place_ == Place::tree ? tree_.number_integer(v) : misplaced("a negative number");
  }
  bool number_float(number_float_t v, const string_t& s) override {
    return place_ == Place::tree ? tree_.number_float(v, s) : misplaced("a fraction");
  }
  bool binary(binary_t& /*v*/) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t v) override {
    if (place_ == Place::tree) return tree_.number_unsigned(v);
    if (place_ != Place::vocab) return misplaced("a number");
    if (v > static_cast<number_unsigned_t>(std::numeric_limits<std::int32_t>::max() - 1)) {
      return refuse("model.vocab gives {} the id {}, ids are below 2^31 - 1", shown(file_->pool.at(token_)), v);
    }
    file_->vocab.push_back({token_, static_cast<std::int32_t>(v)});
    return true;
  }

  bool string(string_t& v) override {
    switch (place_) {
      case Place::tree:
        return tree_.string(v);
      case Place::vocab:
        return misplaced("a string");
      case Place::merges:
        return merge_line(v);
      case Place::pair:
        break;
    }
    if (n_parts_ == 2) return refuse("model.merges[{}] has more than two parts", file_->merges.size());
    parts_[n_parts_++] = file_->pool.add(v);
    return true;
  }

  bool key(string_t& v) override {
    if (place_ == Place::vocab) {
      if (v.empty()) return refuse("model.vocab has an empty token");
      token_ = file_->pool.add(v);
      return true;
    }
    std::vector<std::string>& keys = open_.back();
    for (const std::string& other : keys) {
      if (other == v) return refuse("the key {} stands twice in one object", shown(v));
    }
    if (keys.size() == kMaxMembers) return refuse("an object has more than {} members", kMaxMembers);
    keys.push_back(v);
    return tree_.key(v);
  }

  bool start_object(std::size_t n) override {
    if (place_ != Place::tree) return misplaced("an object");
    if (inside_model() && open_.back().back() == "vocab") {
      place_ = Place::vocab;
      has_vocab_ = true;
      return tree_.null();
    }
    return deeper() && tree_.start_object(n);
  }
  bool end_object() override {
    if (place_ == Place::vocab) {
      place_ = Place::tree;
      return true;
    }
    open_.pop_back();
    return tree_.end_object();
  }

  bool start_array(std::size_t n) override {
    if (place_ == Place::vocab || place_ == Place::pair) return misplaced("a list");
    if (place_ == Place::merges) {
      if (!same_form(MergeForm::pairs)) return false;
      place_ = Place::pair;
      n_parts_ = 0;
      return true;
    }
    if (inside_model() && open_.back().back() == "merges") {
      place_ = Place::merges;
      has_merges_ = true;
      return tree_.null();
    }
    return deeper() && tree_.start_array(n);
  }
  bool end_array() override {
    if (place_ == Place::merges) {
      place_ = Place::tree;
      return true;
    }
    if (place_ == Place::pair) {
      place_ = Place::merges;
      if (n_parts_ != 2) return refuse("model.merges[{}] has {} parts, expected 2", file_->merges.size(), n_parts_);
      file_->merges.push_back({parts_[0], parts_[1]});
      return true;
    }
    open_.pop_back();
    return tree_.end_array();
  }

 private:
  enum class Place { tree, vocab, merges, pair };
  enum class MergeForm { none, lines, pairs };

  template <class... Args>
  bool refuse(fmt::format_string<Args...> format, Args&&... args) {
    return refuse_as(fmt::format(format, std::forward<Args>(args)...));
  }
  bool misplaced(std::string_view what) {
    if (place_ == Place::vocab)
      return refuse("model.vocab[{}] is {}, expected an id", shown(file_->pool.at(token_)), what);
    return refuse("model.merges[{}] is {}, expected \"a b\" or [\"a\", \"b\"]", file_->merges.size(), what);
  }
  bool deeper() {
    if (open_.size() == kMaxDepth) return refuse("nested more than {} deep", kMaxDepth);
    open_.emplace_back();
    return true;
  }
  [[nodiscard]] bool inside_model() const {
    return open_.size() == 2 && !open_[0].empty() && open_[0].back() == "model" && !open_[1].empty();
  }
  bool same_form(MergeForm form) {
    if (form_ == MergeForm::none) form_ = form;
    return form_ == form || refuse("model.merges mixes \"a b\" and [\"a\", \"b\"] at entry {}", file_->merges.size());
  }
  bool merge_line(std::string_view line) {
    if (!same_form(MergeForm::lines)) return false;
    constexpr std::string_view kVersion = "#version";
    if (line.substr(0, kVersion.size()) == kVersion) {
      if (file_->merges.empty() && !std::exchange(version_seen_, true)) return true;
      return refuse("model.merges has a #version line after entry {}; it may only be the first", file_->merges.size());
    }
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return refuse("model.merges[{}] is {}, expected two parts and one space", file_->merges.size(), shown(line));
    }
    const StringPool::Slice first = file_->pool.add(line.substr(0, space));
    file_->merges.push_back({first, file_->pool.add(line.substr(space + 1))});
    return true;
  }

  TokenizerFile* file_;
  nlohmann::detail::json_sax_dom_parser<Json> tree_;
  std::vector<std::vector<std::string>> open_;  // keys so far of each open object or array of the tree
  Place place_ = Place::tree;
  MergeForm form_ = MergeForm::none;
  bool version_seen_ = false;
  bool has_vocab_ = false;
  bool has_merges_ = false;
  StringPool::Slice token_;
  StringPool::Slice parts_[2];
  std::size_t n_parts_ = 0;
};

// `key` must be absent or one of what makes it do nothing.
void require_off(JsonObject& object, std::string_view key, const std::vector<Json>& off) {
  object.ignore(key);
  if (!object.has(key)) return;
  const Json& value = object.any(key);
  for (const Json& neutral : off) {
    if (value == neutral && value.type() == neutral.type()) return;
  }
  object.refuse(key, fmt::format("{}; the feature is not implemented", off.front().dump()));
}

std::string type_of(JsonObject& object) { return object.string("type"); }

void require_type(JsonObject& object, std::string_view expected) {
  if (type_of(object) != expected) object.refuse("type", fmt::format("\"{}\"; others are not implemented", expected));
}

void check_normalizer(JsonObject& root) {
  root.ignore("normalizer");
  if (!root.has("normalizer") || root.is_null("normalizer")) return;
  JsonObject normalizer = root.object("normalizer");
  require_type(normalizer, "Sequence");
  const Json& list = normalizer.any("normalizers");
  if (!list.is_array() || !list.empty())
    normalizer.refuse("normalizers", "an empty list; normalizers are not implemented");
  normalizer.finish();
}

void check_byte_level(JsonObject& stage) {
  require_type(stage, "ByteLevel");
  stage.ignore("trim_offsets");
  stage.ignore("add_prefix_space");
  stage.ignore("use_regex");
  stage.finish();
}

void check_split(JsonObject& stage, std::string_view expected) {
  require_type(stage, "Split");
  JsonObject pattern = stage.object("pattern");
  if (pattern.string("Regex") != expected) {
    pattern.refuse("Regex", fmt::format("{}; other patterns are not implemented", Json(expected).dump()));
  }
  pattern.finish();
  if (stage.string("behavior") != "Isolated") stage.refuse("behavior", "\"Isolated\"");
  if (stage.boolean_or("invert", false)) stage.refuse("invert", "false");
  stage.finish();
}

void check_pre_tokenizer(JsonObject& root) {
  JsonObject sequence = root.object("pre_tokenizer");
  require_type(sequence, "Sequence");
  const Json& stages = sequence.any("pretokenizers");
  if (!stages.is_array() || stages.size() != kSplitPatterns.size() + 1) {
    sequence.refuse("pretokenizers", "three Splits and a ByteLevel; others are not implemented");
  }
  sequence.finish();
  for (std::size_t i = 0; i < stages.size(); ++i) {
    JsonObject stage(stages[i], fmt::format("{}.pretokenizers[{}]", sequence.path(), i), ExitCode::bad_input);
    if (i < kSplitPatterns.size()) {
      check_split(stage, kSplitPatterns[i]);
      continue;
    }
    if (stage.boolean("add_prefix_space")) stage.refuse("add_prefix_space", "false");
    if (stage.boolean_or("use_regex", true)) stage.refuse("use_regex", "false");
    check_byte_level(stage);
  }
}

// A post-processor or decoder: ByteLevel alone.  (As a post-processor it only trims offsets, which nobody asks for
// here.)
void check_stage(JsonObject& root, std::string_view key, bool may_be_null) {
  root.ignore(key);
  if (may_be_null && (!root.has(key) || root.is_null(key))) return;
  JsonObject stage = root.object(key);
  check_byte_level(stage);
}

void check_model(JsonObject& root, const FileReader& reader) {
  JsonObject model = root.object("model");
  require_type(model, "BPE");
  require_off(model, "dropout", {nullptr});
  require_off(model, "unk_token", {nullptr});
  require_off(model, "continuing_subword_prefix", {nullptr, ""});
  require_off(model, "end_of_word_suffix", {nullptr, ""});
  require_off(model, "fuse_unk", {false});
  require_off(model, "byte_fallback", {false});
  require_off(model, "ignore_merges", {false});
  model.any("vocab");
  if (!reader.has_vocab()) model.refuse("vocab", "an object of tokens and their ids");
  model.any("merges");
  if (!reader.has_merges()) model.refuse("merges", "a list");
  model.finish();
}

std::vector<TokenizerFile::AddedToken> read_added(JsonObject& root) {
  std::vector<TokenizerFile::AddedToken> out;
  root.ignore("added_tokens");
  if (!root.has("added_tokens")) return out;
  const Json& list = root.any("added_tokens");
  if (!list.is_array()) root.refuse("added_tokens", "a list");
  for (const Json& element : list) {
    JsonObject token(element, fmt::format("{}: added_tokens[{}]", root.path(), out.size()), ExitCode::bad_input);
    const std::int64_t id = token.integer("id");
    if (id < 0 || id >= std::numeric_limits<std::int32_t>::max()) token.refuse("id", "an id from 0 below 2^31 - 1");
    std::string content = token.string("content");
    if (content.empty() || content.size() > kMaxContent) {
      token.refuse("content", fmt::format("a text of 1 to {} bytes", kMaxContent));
    }
    for (const std::string_view flag : {"single_word", "lstrip", "rstrip"}) require_off(token, flag, {false});
    const bool normalized = token.boolean("normalized");
    out.push_back({std::move(content), static_cast<std::int32_t>(id), normalized, token.boolean("special")});
    token.finish();
  }
  return out;
}

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view text, std::string_view name) {
  constexpr auto kCode = ExitCode::bad_input;
  require(text.substr(0, kLfsMark.size()) != kLfsMark, kCode,
          "{}: is a Git LFS pointer, not the file itself; run git lfs pull in the checkpoint's folder", name);
  require(text.size() <= kMaxFileBytes, kCode, "{}: has {} bytes, a tokenizer.json has at most {}", name, text.size(),
          kMaxFileBytes);
  require(!text.empty(), kCode, "{}: is empty, expected a tokenizer.json", name);
  TokenizerFile file;
  file.pool.reserve(text.size() / 2);
  Json tree;
  FileReader reader(file, tree);
  if (const auto cause = reader.run(text)) fail(kCode, "{}: {}", name, *cause);
  JsonObject root(tree, std::string(name), kCode);
  if (root.string_or("version", "1.0") != "1.0") root.refuse("version", "\"1.0\"");
  require_off(root, "truncation", {nullptr});
  require_off(root, "padding", {nullptr});
  check_normalizer(root);
  check_pre_tokenizer(root);
  check_stage(root, "post_processor", true);
  check_stage(root, "decoder", false);
  check_model(root, reader);
  file.added = read_added(root);
  root.finish();
  return file;
}

}  // namespace bathys::tokenizer
