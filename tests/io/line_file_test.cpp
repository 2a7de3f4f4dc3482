// SPDX-License-Identifier: Apache-2.0
#include "io/line_file.hpp"

#include "io/temp_folder.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::io {
namespace {

using test::expect_error;
using test::spit;
using test::TempFolder;

TEST(LineFile, CutsAlikeWhereverASlabEnds) {
  const TempFolder folder;
  const std::string path = folder.path("lines");
  const std::string text = "first\n\na line longer than most slabs\r\n\nlast but one\ntorn";
  for (const std::string& whole : {text, text + "\n", std::string("\n\n"), std::string("x"), std::string()}) {
    spit(path, whole);
    for (std::size_t slab = 1; slab <= whole.size() + 1; ++slab) {
      LineFile lines(path, slab);
      EXPECT_EQ(lines.bytes(), std::ssize(whole));
      std::string joined;
      while (const auto line = lines.next()) {
        EXPECT_EQ(line->offset, std::ssize(joined)) << "slab " << slab;
        EXPECT_EQ(line->bytes.find('\n'), std::string::npos);
        joined.append(line->bytes).append(line->ended ? "\n" : "");
        EXPECT_TRUE(line->ended || joined.size() == whole.size());
      }
      EXPECT_EQ(joined, whole) << "slab " << slab;
      EXPECT_FALSE(lines.next());
    }
  }
}

TEST(LineFile, GoesToAnyLineAgain) {
  const TempFolder folder;
  const std::string path = folder.path("lines");
  spit(path, "one\n\nthree\nfour");
  const std::vector<std::pair<std::int64_t, std::string>> lines = {{0, "one"}, {4, ""}, {5, "three"}, {11, "four"}};
  for (std::size_t slab = 1; slab < 20; ++slab) {
    LineFile file(path, slab);
    for (const std::size_t at : {3U, 0U, 2U, 2U, 1U, 3U, 1U}) {
      file.go_to(lines[at].first);
      for (std::size_t i = at; i < lines.size(); ++i) {
        const auto line = file.next();
        ASSERT_TRUE(line);
        EXPECT_EQ(line->offset, lines[i].first);
        EXPECT_EQ(line->bytes, lines[i].second);
        if (slab % 2 == 0) break;  // half of them go on to the end
      }
    }
    file.go_to(15);
    EXPECT_FALSE(file.next());
  }
}

TEST(LineFile, BeatsWithEverySlabAndNamesAFileThatIsNotThere) {
  const TempFolder folder;
  spit(folder.path("lines"), "0123456789");
  int beats = 0;
  LineFile lines(folder.path("lines"), 4);
  ASSERT_TRUE(lines.next([&] { ++beats; }));
  EXPECT_GE(beats, 3);
  expect_error(ExitCode::bad_input, {"none"}, [&] { LineFile none(folder.path("none")); });
}

}  // namespace
}  // namespace bathys::io
