// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unicode.hpp"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace bathys::tokenizer {
namespace {

TEST(Unicode, ReplacesEachMaximalInvalidPartOnce) {
  EXPECT_EQ(to_valid_utf8("plain \xC3\xA9"), "plain \xC3\xA9");
  EXPECT_EQ(to_valid_utf8("\xFF"), "\uFFFD");
  EXPECT_EQ(to_valid_utf8("a\xE6\xB7z"), "a\uFFFDz");              // two bytes of three: one part
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\x98"), "\uFFFD");              // three of four, cut by the end
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong: no byte of it begins a character
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(to_valid_utf8("\xE2\x82\xE2\x82\xAC"), "\uFFFD\u20AC");
  EXPECT_EQ(to_valid_utf8(std::string("\0\x80", 2)), std::string("\0", 1) + "\uFFFD");
}

TEST(Unicode, CodePointsSurviveTheWayThroughUtf8) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Step step = utf8_step(text, 0);
    ASSERT_TRUE(step.valid) << static_cast<unsigned>(c);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.size, text.size());
    ASSERT_TRUE(is_valid_utf8(text));
    for (std::size_t cut = 1; cut < text.size(); ++cut) ASSERT_TRUE(utf8_step(text.substr(0, cut), 0).truncated);
  }
}

TEST(Unicode, SpaceHasExactlyTwentyFiveCodePoints) {
  std::set<char32_t> spaces;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (code_class(c) == kSpace) spaces.insert(c);
  }
  EXPECT_EQ(spaces, (std::set<char32_t>{0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,   0xA0,   0x1680,
                                        0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                        0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}));
}

TEST(Unicode, ClassesKnowLettersThatOlderUnicodeVersionsLack) {
  for (const char32_t c : {0x11F04, 0x31350, 0x2EBF0, 0x10D4A, 0xA7CB}) {
    EXPECT_EQ(code_class(c), kLetter) << static_cast<unsigned>(c);
  }
  EXPECT_EQ(code_class(U'½'), kNumber);
  EXPECT_EQ(code_class(U'Ⅻ'), kNumber);
  EXPECT_EQ(code_class(0x0301), kMark);
  EXPECT_EQ(code_class(U'_'), kPunctuation);
  EXPECT_EQ(code_class(U'€'), kSymbol);
  EXPECT_EQ(code_class(0x180E), kNone);
  EXPECT_EQ(code_class(0x200B), kNone);
  EXPECT_EQ(code_class(0x110000), kNone);
}

TEST(Unicode, StripsAndSplitsAsPythonDoes) {
  EXPECT_EQ(strip_left("\x1C \u00A0x "), "x ");
  EXPECT_EQ(strip_right(" x\u3000\x1F\n"), " x");
  EXPECT_EQ(strip_right("\u2003\u2003"), "");
  EXPECT_EQ(strip_right("x\u200B"), "x\u200B");
  EXPECT_EQ(strip_right("x\x80\x80"), "x\x80\x80");
  EXPECT_EQ(strip_right(""), "");
  EXPECT_EQ(count_words(" a\u2028b\x1D"
                        "c  "),
            3);
  EXPECT_EQ(count_words("\u180E"), 1);
  EXPECT_EQ(count_words(" \t"), 0);
  EXPECT_EQ(count_code_points("aé😀\xFF"), 4);
}

}  // namespace
}  // namespace bathys::tokenizer
