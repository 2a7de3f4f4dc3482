// SPDX-License-Identifier: Apache-2.0
#include "eval/task.hpp"
#include "eval/token_split.hpp"
#include "io/hash.hpp"
#include "tokenizer/prompt.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace bathys::eval {
namespace {

// First 64 bits of SHA-256 over the seed (8 little-endian bytes) and the custom_id: what the noise of a request is
// keyed by.
std::uint64_t noise_key(std::uint64_t seed, const std::string& custom_id) {
  std::string bytes;
  for (int byte = 0; byte < 8; ++byte) bytes += static_cast<char>(seed >> (8 * byte));
  const std::string hex = io::sha256_hex(bytes + custom_id);
  std::uint64_t key = 0;
  for (int byte = 7; byte >= 0; --byte)
    key = key << 8 | std::stoul(hex.substr(2 * static_cast<std::size_t>(byte), 2), nullptr, 16);
  return key;
}

void begin_with_bos(TokenIds& ids, std::int32_t bos) {
  if (ids.front() != bos) ids.insert(ids.begin(), bos);
}

TokenIds chat_ids(const Messages& messages, const TaskContext& context, PreparedTask& task) {
  try {
    const tokenizer::Conversation conversation = tokenizer::read_conversation(messages.body);
    if (conversation.n_images > 0) throw RecordFailure{"unsupported_parameter", "messages with images"};
    task.answer_start = tokenizer::answer_start(conversation);
    task.with_calls = !conversation.tools.empty();
    return tokenizer::encode_prompt(*context.tokenizer, conversation);
  } catch (const tokenizer::PromptError& error) {
    throw RecordFailure{error.code(), error.what()};
  }
}

TokenIds plain_ids(const Context& source, const TaskContext& context, PreparedTask& task) {
  if (const auto* messages = std::get_if<Messages>(&source)) return chat_ids(*messages, context, task);
  if (const auto* text = std::get_if<std::string>(&source)) return context.tokenizer->encode(*text);
  return std::get<TokenIds>(source);
}

TokenPair continuation_pair(const Request& request, const Loglikelihood& body, std::size_t index,
                            const TaskContext& context, PreparedTask& task) {
  const auto* texts = std::get_if<std::vector<std::string>>(&body.continuations);
  const auto* text_context = std::get_if<std::string>(&body.context);
  TokenPair pair;
  if (texts != nullptr && text_context != nullptr) {
    pair = split_pair(*context.tokenizer, *text_context, (*texts)[index], context.prefix_token);
  } else {  // ids on one side at least: nothing can merge over the border
    TokenIds continuation = texts != nullptr ? context.tokenizer->encode((*texts)[index])
                                             : std::get<std::vector<TokenIds>>(body.continuations)[index];
    pair = pair_of(plain_ids(body.context, context, task), std::move(continuation), context.prefix_token);
  }
  if (request.add_bos && !pair.prefixed) begin_with_bos(pair.context, context.bos);
  return pair;
}

void prepare(const Request& request, const Loglikelihood& body, const TaskContext& context, PreparedTask& task) {
  const std::size_t n = std::visit([](const auto& list) { return list.size(); }, body.continuations);
  engine::ScoreJob job;
  for (std::size_t i = 0; i < n; ++i) {
    const TokenPair pair = continuation_pair(request, body, i, context, task);
    const auto length = static_cast<std::int64_t>(pair.continuation.size());
    if (length == 0)
      throw RecordFailure{"empty_continuation", fmt::format("continuation {} has no token left to score", i)};
    if (length > request.max_length) {
      throw RecordFailure{"continuation_too_long", fmt::format("continuation {} has {} tokens, max_length is {}", i,
                                                               length, request.max_length)};
    }
    Truncated cut = truncate_pair(pair, request.max_length);
    if (i == 0) task.prompt_tokens = static_cast<std::int64_t>(pair.context.size());
    task.truncated.push_back(cut.dropped);
    job.sequences.push_back(std::move(cut.sequence));
  }
  task.job = std::move(job);
}

void prepare(const Request& request, const Rolling& body, const TaskContext& context, PreparedTask& task) {
  const auto* text = std::get_if<std::string>(&body.text);
  const TokenIds ids = text != nullptr ? context.tokenizer->encode(*text) : std::get<TokenIds>(body.text);
  const std::string decoded = text != nullptr ? std::string() : context.tokenizer->decode(ids);
  const std::string& whole = text != nullptr ? *text : decoded;
  task.n_words = count_pieces(whole);
  task.n_bytes = static_cast<std::int64_t>(whole.size());
  if (ids.empty()) return;
  task.prompt_tokens = 1;
  engine::ScoreJob job;
  job.sequences = rolling_windows(ids, context.prefix_token, request.max_length);
  task.job = std::move(job);
}

// How many tokens may be drawn behind a prompt of `n_prompt` tokens.
std::int64_t limit_of(const Request& request, const Generate& body, std::int64_t n_prompt) {
  const std::int64_t limit =
      body.fill_length ? std::min(body.max_gen_toks, request.max_length - n_prompt) : body.max_gen_toks;
  if (body.whole_context && (n_prompt > request.max_length - limit || (body.fill_length && limit <= 0))) {
    throw RecordFailure{"context_length_exceeded",
                        body.fill_length
                            ? fmt::format("the prompt has {} tokens, max_length {} leaves no room for an answer",
                                          n_prompt, request.max_length)
                            : fmt::format("the prompt has {} tokens and {} may be drawn, max_length is {}", n_prompt,
                                          limit, request.max_length)};
  }
  if (limit >= request.max_length) {
    throw RecordFailure{
        "context_length_exceeded",
        fmt::format("max_gen_toks {} leaves no room for a context in max_length {}", limit, request.max_length)};
  }
  return limit;
}

void prepare(const Request& request, const Generate& body, const TaskContext& context,
             std::span<const std::int32_t> repeats, PreparedTask& task) {
  engine::GenerateJob job;
  TokenPair pair = pair_of(plain_ids(body.context, context, task), {}, context.prefix_token);
  if (request.add_bos && !pair.prefixed) begin_with_bos(pair.context, context.bos);
  job.prompt = std::move(pair.context);
  job.max_new_tokens = limit_of(request, body, std::ssize(job.prompt));
  const auto surplus = std::max<std::ptrdiff_t>(0, std::ssize(job.prompt) - (request.max_length - job.max_new_tokens));
  job.prompt.erase(job.prompt.begin(), job.prompt.begin() + surplus);
  job.temperature = static_cast<float>(std::min<double>(body.temperature, std::numeric_limits<float>::max()));
  job.top_p = body.top_p;
  job.key = noise_key(request.seed, request.custom_id);
  job.repeats.assign(repeats.begin(), repeats.end());
  for (std::int32_t& repeat : job.repeats) repeat += request.first_repeat;
  job.top_logprobs = body.top_logprobs;
  // While the model thinks only EOS and the limit end it: a stop quoted in the reasoning is none.
  const bool thinks =
      request.dialect == Dialect::chat && (task.answer_start == tokenizer::AnswerStart::reasoning ||
                                           task.answer_start == tokenizer::AnswerStart::continued_reasoning);
  if (!body.think_end && !thinks) {
    job.stops = body.until;
    job.stops.emplace_back(context.tokenizer->token_text(context.eos));
  }
  task.prompt_tokens = std::ssize(job.prompt);
  task.job = std::move(job);
}

}  // namespace

PreparedTask prepare_task(const Request& request, const TaskContext& context, std::span<const std::int32_t> repeats) {
  PreparedTask task;
  try {
    if (request.unsupported) throw RecordFailure{"unsupported_parameter", *request.unsupported};
    if (const auto* scored = std::get_if<Loglikelihood>(&request.body)) prepare(request, *scored, context, task);
    if (const auto* rolling = std::get_if<Rolling>(&request.body)) prepare(request, *rolling, context, task);
    if (const auto* generate = std::get_if<Generate>(&request.body))
      prepare(request, *generate, context, repeats, task);
  } catch (const RecordFailure& failure) {
    task = PreparedTask();
    task.failure = failure;
  }
  return task;
}

}  // namespace bathys::eval
