// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.hpp"

#include "core/error.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/tokenizer_file.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/vocabulary.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace bathys::tokenizer {

struct Tokenizer::Parts {
  Parts(const TokenizerFile& file, std::string_view name, std::optional<std::int64_t> vocab_size)
      : vocabulary(file, name, vocab_size), bpe(file, vocabulary, name), added(file.added) {}

  void check(TokenId id) const {
    require(vocabulary.contains(id), ExitCode::bad_requests, "token id {} does not exist, ids are 0 to {}", id,
            vocabulary.size() - 1);
  }

  Vocabulary vocabulary;
  Bpe bpe;
  AddedTokens added;
};

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view name, std::optional<std::int64_t> vocab_size) {
  return Tokenizer(std::make_unique<Parts>(read_tokenizer_file(text, name), name, vocab_size));
}

Tokenizer Tokenizer::from_file(const std::filesystem::path& path, std::optional<std::int64_t> vocab_size) {
  std::error_code error;
  require(!std::filesystem::is_directory(path, error), ExitCode::bad_input,
          "{}: is a folder, expected a tokenizer.json", path.string());
  std::ifstream in(path, std::ios::binary);
  require(in.is_open(), ExitCode::bad_input, "{}: cannot be opened, expected a tokenizer.json", path.string());
  std::string text;
  constexpr std::size_t kPart = std::size_t{4} << 20;
  const std::uintmax_t known = std::filesystem::file_size(path, error);
  if (!error && known <= kMaxFileBytes) text.reserve(static_cast<std::size_t>(known) + kPart + 1);
  for (std::size_t size = 0; in && size <= kMaxFileBytes; text.resize(size)) {  // a pipe has no size
    text.resize(size + kPart);
    in.read(text.data() + size, kPart);
    size += static_cast<std::size_t>(in.gcount());
  }
  require(!in.bad(), ExitCode::bad_input, "{}: cannot be read", path.string());
  return from_json(text, path.string(), vocab_size);
}

std::vector<TokenId> Tokenizer::encode(std::string_view utf8, bool match_added) const {
  std::vector<TokenId> ids;
  encode_to(utf8, match_added, ids);
  return ids;
}

std::uint64_t Tokenizer::encode_to(std::string_view utf8, bool match_added, std::vector<TokenId>& out) const {
  std::string repaired;
  if (!is_valid_utf8(utf8)) {
    repaired = to_valid_utf8(utf8);
    utf8 = repaired;
  }
  std::uint64_t steps = 0;
  const auto plain = [&](std::string_view part) {
    PieceScanner pieces(part);
    while (!pieces.done()) parts_->bpe.encode(pieces.next(), out, steps);
    steps += pieces.steps();
  };
  if (match_added) {
    parts_->added.split(utf8, steps, plain, [&](TokenId id) { out.push_back(id); });
  } else {
    plain(utf8);
  }
  return steps;
}

std::vector<std::vector<TokenId>> Tokenizer::encode_batch(std::span<const std::string> texts, int threads,
                                                          bool match_added) const {
  std::vector<std::vector<TokenId>> results(texts.size());
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_lock;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < texts.size(); i = next++) encode_to(texts[i], match_added, results[i]);
    } catch (...) {
      next = texts.size();  // the others stop as well
      const std::lock_guard lock(failure_lock);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::size_t wanted = std::min(static_cast<std::size_t>(std::max(threads, 1)), texts.size());
    try {
      for (std::size_t i = 1; i < wanted; ++i) helpers.emplace_back(work);
    } catch (const std::system_error&) {  // a limit of threads or memory: those that there are do the work
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return results;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    parts_->check(id);
    if (!skip_special || !parts_->vocabulary.is_special(id)) bytes.append(parts_->vocabulary.bytes(id));
  }
  return is_valid_utf8(bytes) ? bytes : to_valid_utf8(bytes);
}

std::int64_t Tokenizer::vocab_size() const { return parts_->vocabulary.size(); }

std::optional<TokenId> Tokenizer::token_id(std::string_view content) const {
  const std::int32_t id = parts_->vocabulary.find(content);
  return id == StringIndex::kAbsent ? std::nullopt : std::optional(id);
}

std::string_view Tokenizer::token_text(TokenId id) const {
  parts_->check(id);
  return parts_->vocabulary.text(id);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  parts_->check(id);
  return parts_->vocabulary.bytes(id);
}

bool Tokenizer::is_special(TokenId id) const {
  parts_->check(id);
  return parts_->vocabulary.is_special(id);
}

std::string StreamDecoder::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  pending_.append(tokenizer_->token_bytes(id));
  // Keep back what may still become a character: an incomplete sequence at the end, at most 3 bytes.
  std::size_t certain = pending_.size();
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, pending_.size()); ++back) {
    const Utf8Step step = utf8_step(pending_, pending_.size() - back);
    if (step.truncated && step.size == back) certain = pending_.size() - back;
  }
  std::string text = to_valid_utf8(std::string_view(pending_).substr(0, certain));
  pending_.erase(0, certain);
  return text;
}

std::string StreamDecoder::finish() { return to_valid_utf8(std::exchange(pending_, {})); }

}  // namespace bathys::tokenizer
