// SPDX-License-Identifier: Apache-2.0
#include "io/line_file.hpp"

#include "io/temp_folder.hpp"

#include <string>
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
