// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/pulse.hpp"
#include "eval/request.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::eval {

// What a request is checked against and defaults to.
struct RequestRules {
  std::int64_t vocab_size = 0;           // token ids are 0 .. vocab_size-1
  std::int64_t max_length = 0;           // the run's; a request may ask for less
  std::uint64_t seed = 0;                // of requests without one
  std::vector<std::string> model_names;  // what a body's `model` may say
};

// One fault of a request file.  Codes: empty_file invalid_json_line invalid_utf8 duplicate_custom_id missing_field
// unknown_field wrong_type url_mismatch model_mismatch.
struct RequestFault {
  std::int64_t line = 0;
  std::string code;
  std::string words;
  // "line 3: wrong_type: body.seed is 1.5, expected an integer from 0 to 9223372036854775807"
  [[nodiscard]] std::string text() const;
};

// At most this many faults are listed; reading stops there.
inline constexpr std::size_t kMaxRequestFaults = 100;

struct RequestFile {
  std::vector<Request> requests;     // in file order
  std::vector<RequestFault> faults;  // empty: the file is valid
};

// At most so many answers to one prompt.
inline constexpr std::int64_t kMaxRepeats = 1'000'000;
// At most so many tokens drawn for one answer.
inline constexpr std::int64_t kMaxDrawnTokens = std::int64_t{1} << 31;
inline constexpr int kMaxTopLogprobs = 20;

// The bytes of a request file, read once; a pipe will do.
//   throws Error(bad_input), and Error(stopped) when this process is asked to stop meanwhile
[[nodiscard]] std::string read_request_text(const std::string& path, const Pulse& pulse);

// Reads and checks a whole request file.  Never throws for what stands in it: faults are listed.  Blank lines are
// passed over.
RequestFile read_requests(std::string_view text, const RequestRules& rules, const Pulse& pulse = {});

// What is allowed but may not be meant, for a warning; empty where there is nothing.
[[nodiscard]] std::string oversights(const RequestFile& file);

// throws Error(bad_requests) naming `name`, the number of faults and the first one, when there are any
void require_valid(const RequestFile& file, std::string_view name);

}  // namespace bathys::eval
