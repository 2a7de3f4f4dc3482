// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/tokenizer.hpp"

#include <functional>
#include <iosfwd>
#include <span>
#include <string>

// `bathys bench tokenizer`: how fast one thread turns texts into token ids and back, and how long the tables take.
namespace bathys::bench {

// Opens the tokenizer again and again, encodes all `texts` and decodes their ids, each for `seconds`; prints one line
// with the fastest time of each (MB = 10^6 bytes of text).
//   throws Error(internal) when a text does not come back as it was; what `open` throws
void bench_tokenizer(const std::function<tokenizer::Tokenizer()>& open, std::span<const std::string> texts,
                     double seconds, std::ostream& out);

}  // namespace bathys::bench
