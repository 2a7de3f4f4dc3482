// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::tokenizer {

using TokenId = std::int32_t;

// Byte-level BPE of the DeepSeek family, read from a tokenizer.json; ids and texts equal those of the Hugging Face
// tokenizers library 0.23 (docs/tokenizer.md says what of the format is understood).  All const functions may run in
// many threads.
class Tokenizer {
 public:
  // Reads the text of a tokenizer.json; `name` stands in messages.  With `vocab_size` (from the model's config) the ids
  // must be exactly 0 .. vocab_size-1; without it their number must divide by 8, as every model of the family pads or
  // fills it.
  //   throws Error(bad_input) for text that is not such a file, a feature this program does not implement (by name),
  //   merges or ids that contradict each other, a Git LFS pointer
  static Tokenizer from_json(std::string_view text, std::string_view name,
                             std::optional<std::int64_t> vocab_size = std::nullopt);
  static Tokenizer from_file(const std::filesystem::path& path, std::optional<std::int64_t> vocab_size = std::nullopt);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids of `utf8`; nothing is added in front or behind.  Each maximal invalid part of the text counts as U+FFFD.
  // `match_added`: spellings of added tokens become their ids; false takes them as plain text.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view utf8, bool match_added = true) const;
  // Appends to `out` instead.  Returns the elementary steps it took (code points looked at, merges tried, entries
  // sorted): what a test of growth compares where times would be noise.
  std::uint64_t encode_to(std::string_view utf8, bool match_added, std::vector<TokenId>& out) const;
  // encode() of every text, on up to `threads` threads (at least one; as many as the system grants); result i belongs
  // to text i.
  [[nodiscard]] std::vector<std::vector<TokenId>> encode_batch(std::span<const std::string> texts, int threads,
                                                               bool match_added = true) const;

  // Text of `ids`, always valid UTF-8: what the bytes leave incomplete or invalid is U+FFFD.  `skip_special` leaves out
  // the tokens that tokenizer.json calls special.
  //   throws Error(bad_requests) for an id outside 0 .. vocab_size()-1
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  [[nodiscard]] std::int64_t vocab_size() const;
  // The id spelled `content` in tokenizer.json (vocabulary spelling for BPE tokens: "Ġthe"), if any.
  [[nodiscard]] std::optional<TokenId> token_id(std::string_view content) const;
  // The next three throw Error(bad_requests) for an id that does not exist.
  [[nodiscard]] std::string_view token_text(TokenId id) const;   // as spelled in tokenizer.json
  [[nodiscard]] std::string_view token_bytes(TokenId id) const;  // what it decodes to, maybe a part of a character
  [[nodiscard]] bool is_special(TokenId id) const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Decodes token by token: the texts returned, joined, are decode() of all ids, and none ends inside a code point.
class StreamDecoder {
 public:
  // `tokenizer` must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  // Text that has become certain with this token; often empty while a character is incomplete.
  std::string push(TokenId id);
  // What remains: an incomplete character is U+FFFD.  The decoder can be used anew.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace bathys::tokenizer
