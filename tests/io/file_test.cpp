// SPDX-License-Identifier: Apache-2.0
#include "io/file.hpp"

#include "io/atomic_file.hpp"
#include "io/hash.hpp"
#include "io/lines.hpp"
#include "io/output.hpp"
#include "io/temp_folder.hpp"

#include <csignal>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bathys::io {
namespace {

using test::expect_error;
using test::slurp;
using test::spit;
using test::TempFolder;

std::string range(const ReadFile& file, std::uint64_t offset, std::size_t bytes) {
  std::string text(bytes, '?');
  file.read_at(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(ReadFile, ReadsAnyRangeAndNamesTheEndItMeets) {
  const TempFolder folder;
  spit(folder.path("a"), "0123456789");
  const ReadFile file(folder.path("a"));
  EXPECT_EQ(file.size(), 10U);
  EXPECT_EQ(range(file, 3, 4), "3456");
  EXPECT_EQ(range(file, 10, 0), "");
  expect_error(ExitCode::bad_input, {"/a", "byte 10", "truncated"}, [&] { range(file, 8, 3); });
}

TEST(ReadFile, RefusesWhatIsNoRegularFileWithoutWaiting) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("fifo").c_str(), 0600), 0);
  expect_error(ExitCode::bad_input, {"fifo", "a pipe"}, [&] { ReadFile file(folder.path("fifo")); });
  expect_error(ExitCode::bad_input, {"a directory"}, [&] { ReadFile file(folder.path()); });
  expect_error(ExitCode::bad_input, {"absent", "No such file"}, [&] { ReadFile file(folder.path("absent")); });
}

TEST(ReadStream, ReadsAPipeToItsEndAndEveryByte) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("fifo").c_str(), 0600), 0);
  std::string sent(3'000'000, 'x');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>('a' + i % 23);
  std::thread writer([&] {
    const Descriptor fd(::open(folder.path("fifo").c_str(), O_WRONLY));
    write_all(fd.get(), std::as_bytes(std::span(sent)), "fifo");
  });
  EXPECT_EQ(read_stream(folder.path("fifo")), sent);
  writer.join();
  expect_error(ExitCode::bad_input, {"absent"}, [&] { read_stream(folder.path("absent")); });
}

TEST(ReadStream, AWaitForAWriterCanBeEnded) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("fifo").c_str(), 0600), 0);
  int looks = 0;
  const auto pulse = [&] { require(++looks < 3, ExitCode::stopped, "told to stop"); };
  expect_error(ExitCode::stopped, {"told to stop"}, [&] { read_stream(folder.path("fifo"), pulse); });
  // One who has written and waits is no different, nor one who never rests.
  const Descriptor writer(::open(folder.path("fifo").c_str(), O_RDWR));
  write_all(writer.get(), std::as_bytes(std::span(std::string_view("begun"))), "fifo");
  looks = 0;
  expect_error(ExitCode::stopped, {"told to stop"}, [&] { read_stream(folder.path("fifo"), pulse); });
  looks = 0;
  expect_error(ExitCode::stopped, {"told to stop"}, [&] { read_stream("/dev/zero", pulse); });
}

TEST(DescribeNonFile, CallsCommonNonFilesByTheirNames) {
  EXPECT_NE(describe_non_file("version https://git-lfs.github.com/spec/v1\n", 130).find("Git LFS pointer"),
            std::string::npos);
  EXPECT_NE(describe_non_file("<!DOCTYPE html>", 64).find("HTML"), std::string::npos);
  EXPECT_NE(describe_non_file("", 0).find("empty"), std::string::npos);
  EXPECT_NE(describe_non_file(std::string(64, '\0'), 1000).find("zeros"), std::string::npos);
  EXPECT_EQ(describe_non_file("\x10\0\0\0\0\0\0\0{}", 100), "");
}

TEST(Buffer, IsPageAlignedAndMoves) {
  Buffer a(10);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % kPageBytes, 0U);
  std::byte* const data = a.data();
  const Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
}

TEST(Hash, HasThePublishedValues) {
  EXPECT_EQ(sha256_hex(std::string_view("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(xxh3_128(std::string_view("")).hex(), "99aa06d3014798d86001c324468d497f");
  Sha256 parts;
  parts.update("a");
  parts.update("bc");
  EXPECT_EQ(parts.hex(), sha256_hex(std::string_view("abc")));
}

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
  const TempFolder folder;
  const std::string path = folder.path("out");
  {
    AtomicFile file(path);
    file.write("half");
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  write_file(path, "one");
  write_file(path, "two");
  EXPECT_EQ(slurp(path), "two");
  EXPECT_FALSE(std::filesystem::exists(partial_name(path)));
}

TEST(AtomicFile, TellsPlacesThatCannotBeWrittenFromFullOnes) {
  const TempFolder folder;
  expect_error(ExitCode::usage, {"absent/out", "cannot be created"},
               [&] { write_file(folder.path("absent/out"), "x"); });
  expect_error(ExitCode::usage, {"file/below"}, [&] {
    spit(folder.path("file"), "");
    make_folder(folder.path("file/below"));
  });
  expect_error(ExitCode::stopped, {"out", "No space left", "run the same command again"}, [] {
    const Descriptor full(::open("/dev/full", O_WRONLY));
    write_all(full.get(), std::as_bytes(std::span("x")), "out");
  });
}

TEST(AtomicFile, MeetsAFileSizeLimitAsAStop) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {  // a limit cannot be lifted again, so it is set in a process of its own
    guard_standard_descriptors();
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file(folder.path("big"), std::string(10000, 'x'));
    } catch (const Error& error) {
      ::_exit(static_cast<int>(error.code()));
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 75);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(FolderLock, KeepsASecondHolderOutAndNamesTheFirst) {
  const TempFolder folder;
  {
    const FolderLock lock(folder.path());
    expect_error(ExitCode::usage, {folder.path(), "in use by process", std::to_string(::getpid())},
                 [&] { FolderLock second(folder.path()); });
  }
  const FolderLock again(folder.path());
}

TEST(Output, LosesNothingInSilence) {
  const TempFolder folder;
  {
    const Descriptor fd(::open(folder.path("out").c_str(), O_WRONLY | O_CREAT, 0600));
    Output out(fd.get(), "out");
    out.print("{} {}\n", 1, "two");
    out.write(std::string(200'000, 'x'));
    out.finish();
  }
  EXPECT_EQ(slurp(folder.path("out")).size(), 200'006U);
  for (const std::size_t bytes : {10U, 10'000'000U}) {
    expect_error(ExitCode::stopped, {"standard output"}, [bytes] {
      const Descriptor full(::open("/dev/full", O_WRONLY));
      Output out(full.get());
      out.write(std::string(bytes, 'x'));
      out.finish();
    });
  }
  expect_error(ExitCode::usage, {"closed"}, [] {
    Output out(987);
    out.write("x");
    out.finish();
  });
}

TEST(Output, EndsQuietlyWhenTheReaderIsGone) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGPIPE, SIG_IGN);  // as some launchers leave it
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(1);
    ::close(ends[0]);
    Output out(ends[1]);
    out.write("x");
    out.finish();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGPIPE);
}

TEST(StandardDescriptors, AreNeverGivenToAnotherFile) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(1);
    guard_standard_descriptors();
    const Descriptor journal(::open(folder.path("journal").c_str(), O_WRONLY | O_CREAT, 0600));
    const bool refused = ::write(1, "message", 7) < 0;
    ::_exit(journal.get() > 2 && refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

std::vector<std::string> lines_of(std::string_view text) {
  LineReader reader(text);
  std::vector<std::string> lines;
  while (const auto line = reader.next()) lines.push_back(fmt::format("{}:{}", line->number, line->bytes));
  return lines;
}

TEST(LineReader, EndsLinesAtNewlinesAlone) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of(""), Lines{});
  EXPECT_EQ(lines_of("a\nb\n"), (Lines{"1:a", "2:b"}));
  EXPECT_EQ(lines_of("a\nb"), (Lines{"1:a", "2:b"}));
  EXPECT_EQ(lines_of("a\r\nb\r\n"), (Lines{"1:a\r", "2:b\r"}));
  EXPECT_EQ(lines_of("\n\na\n"), (Lines{"1:", "2:", "3:a"}));
  EXPECT_EQ(lines_of("a\xe2\x80\xa8"
                     "b\xc2\x85"
                     "c\vd\fe\n"),
            (Lines{"1:a\xe2\x80\xa8"
                   "b\xc2\x85"
                   "c\vd\fe"}));
  EXPECT_EQ(lines_of("\xef\xbb\xbf"
                     "a\n\xef\xbb\xbf"
                     "b\n"),
            (Lines{"1:a",
                   "2:\xef\xbb\xbf"
                   "b"}));
  EXPECT_EQ(lines_of("\xef\xbb\xbf"), Lines{});
  EXPECT_TRUE(is_blank(" \t\r"));
  EXPECT_TRUE(is_blank(""));
  EXPECT_FALSE(is_blank(" x"));
}

TEST(LineReader, FindsAsManyRequestsAsTheCaseFilesAreNamedFor) {
  const std::string cases = std::string(BATHYS_TEST_DATA) + "/cases/files/";
  for (const auto& [name, expected] : std::vector<std::pair<std::string, int>>{{"c13_u2028_3_requests", 3},
                                                                               {"c13_crlf_3_requests", 3},
                                                                               {"c13_no_last_newline_3_requests", 3},
                                                                               {"c13_blank_lines_3_requests", 3},
                                                                               {"c13_bom_3_requests", 3},
                                                                               {"c13_long_line_1_request", 1}}) {
    const std::string text = read_stream(cases + name + ".jsonl");
    LineReader reader(text);
    int found = 0;
    while (const auto line = reader.next()) found += is_blank(line->bytes) ? 0 : 1;
    EXPECT_EQ(found, expected) << name;
  }
}

}  // namespace
}  // namespace bathys::io
