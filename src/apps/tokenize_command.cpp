// SPDX-License-Identifier: Apache-2.0
#include "apps/tokenize_command.hpp"

#include "apps/json_lines.hpp"
#include "core/error.hpp"
#include "core/shown.hpp"
#include "eval/json_text.hpp"
#include "tokenizer/unicode.hpp"

#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace bathys::apps {
namespace {

using tokenizer::TokenId;
using tokenizer::Tokenizer;

constexpr std::size_t kBatchBytes = std::size_t{4} << 20;  // of input that one parallel batch takes

void encode_lines(const Tokenizer& tokenizer, const TokenizeOptions& options, std::string_view input,
                  std::string_view name, io::Output& out) {
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  const auto answer = [&] {
    for (const auto& ids : tokenizer.encode_batch(texts, options.threads, !options.plain))
      out.write(eval::json_integers(ids).append("\n"));
    texts.clear();
    bytes = 0;
  };
  for_each_json_line(input, name, [&](JsonLine line) {
    if (!line.body.is_string()) line.refuse("expected a JSON string");
    texts.push_back(std::move(line.body.get_ref<std::string&>()));
    bytes += line.bytes;
    if (bytes >= kBatchBytes) answer();
  });
  answer();
}

void decode_lines(const Tokenizer& tokenizer, const TokenizeOptions& options, std::string_view input,
                  std::string_view name, io::Output& out) {
  std::vector<TokenId> ids;
  for_each_json_line(input, name, [&](const JsonLine& line) {
    if (!line.body.is_array()) line.refuse("expected a list of token ids");
    ids.clear();
    for (const Json& id : line.body) {
      const bool exists =
          id.is_number_unsigned() && id.get<std::uint64_t>() < static_cast<std::uint64_t>(tokenizer.vocab_size());
      if (!exists)
        line.refuse(
            fmt::format("{} is no token id, expected integers from 0 to {}", shown(id), tokenizer.vocab_size() - 1));
      ids.push_back(id.get<TokenId>());
    }
    out.print("{}\n", eval::json_string(tokenizer.decode(ids, options.skip_special)));
  });
}

void decode_text(const Tokenizer& tokenizer, const TokenizeOptions& options, std::string_view input,
                 std::string_view name, io::Output& out) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<TokenId> ids;
  for (std::size_t at = input.find_first_not_of(kBetween); at != std::string_view::npos;
       at = input.find_first_not_of(kBetween, at)) {
    const std::string_view word = input.substr(at, input.find_first_of(kBetween, at) - at);
    TokenId id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    require(error == std::errc() && end == word.data() + word.size() && id >= 0 && id < tokenizer.vocab_size(),
            ExitCode::bad_requests, "{}: byte {}: {} is no token id, expected integers from 0 to {}", name, at,
            eval::json_string(tokenizer::to_valid_utf8(word.substr(0, 40))), tokenizer.vocab_size() - 1);
    ids.push_back(id);
    at += word.size();
  }
  out.write(tokenizer.decode(ids, options.skip_special));
  out.write("\n");
}

void show_pieces(const Tokenizer& tokenizer, const TokenizeOptions& options, std::string_view input, io::Output& out) {
  const std::vector<TokenId> ids = tokenizer.encode(input, !options.plain);
  for (const TokenId id : ids) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (tokenizer::is_valid_utf8(bytes)) {
      out.print("{:>7}  {}\n", id, eval::json_string(bytes));
      continue;
    }
    out.print("{:>7} ", id);
    for (const char byte : bytes) out.print(" {:02x}", static_cast<std::uint8_t>(byte));
    out.print("\n");
  }
  out.print("tokens={} bytes={} characters={} bytes_per_token={:.3f}\n", ids.size(), input.size(),
            tokenizer::count_code_points(input),
            ids.empty() ? 0.0 : static_cast<double>(input.size()) / static_cast<double>(ids.size()));
}

}  // namespace

void run_tokenize(const Tokenizer& tokenizer, const TokenizeOptions& options, std::string_view input,
                  std::string_view input_name, io::Output& out) {
  if (options.json && options.decode) {
    decode_lines(tokenizer, options, input, input_name, out);
  } else if (options.json) {
    encode_lines(tokenizer, options, input, input_name, out);
  } else if (options.decode) {
    decode_text(tokenizer, options, input, input_name, out);
  } else {
    show_pieces(tokenizer, options, input, out);
  }
  out.finish();
}

}  // namespace bathys::apps
