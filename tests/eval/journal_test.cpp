// SPDX-License-Identifier: Apache-2.0
#include "eval/journal.hpp"

#include "eval/support.hpp"
#include "io/hash.hpp"
#include "io/temp_folder.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bathys::eval {
namespace {

// What this process has asked to be made durable, by path.
std::vector<std::string>& synced() {
  static std::vector<std::string> paths;
  return paths;
}

}  // namespace
}  // namespace bathys::eval

// In the C library's place.
extern "C" int fsync(int fd) {
  std::error_code none;
  bathys::eval::synced().push_back(std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd), none).string());
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace bathys::eval {
namespace {

using bathys::test::expect_error;
using bathys::test::slurp;
using bathys::test::spit;
using bathys::test::TempFolder;

constexpr const char* kItem = R"({"rank":0,"seconds":0.5})";

class JournalTest : public ::testing::Test {
 protected:
  JournalTest()
      : requests_(test::read(test::line("generate_until", R"({"context":"a","repeats":2})", "a") +
                             test::line("loglikelihood_rolling", R"({"text":"b"})", "b"))
                      .requests) {}

  Record misfit(std::size_t request, std::int32_t repeat, std::int64_t bytes) const {
    Record one = record(request, repeat, "room", false);
    one.cache_bytes = bytes;
    return one;
  }
  Record record(std::size_t request, std::int32_t repeat, const std::string& text, bool ok = true,
                const std::string& code = "does_not_fit") const {
    const std::string drawn = R"("result":{"text":")" + text +
                              R"(","reasoning":null,"finish_reason":"length","stop":null,"in_thinking":false})";
    const std::string scored =
        R"("result":{"logprob":-1.5,"n_tokens":1,"n_windows":1,"n_words":1,"n_bytes":1,"note":")" + text + R"("})";
    const std::string failed = R"("error":{"code":")" + code + R"(","message":")" + text + R"("})";
    return {repeat, ok,
            fmt::format(R"({{"custom_id":"{}","repeat":{},"kind":"{}","request_sha256":"{}","ok":{},{},"usage":{}}})",
                        requests_[request].custom_id, repeat, requests_[request].kind(), requests_[request].sha256, ok,
                        !ok            ? failed
                        : request == 0 ? drawn
                                       : scored,
                        R"({"prompt_tokens":1,"completion_tokens":1,"reasoning_tokens":0})")};
  }
  StartHeader start(int number, int ranks = 1) const { return {number, "2026-01-01T00:00:00Z", ranks, "tensor", 0}; }
  void write(int number, const std::vector<Record>& records) {
    JournalWriter writer(folder_.path(), start(number), 0);
    for (const Record& one : records) writer.append(one, kItem);
  }
  // What a start writes that answers again what failed.
  void write_again(int number, const Record& one, const Record& failed) {
    JournalWriter(folder_.path(), start(number), 0).append(one, kItem, io::xxh3_128(failed.text));
  }
  RecordTable read() {
    RecordTable table(requests_);
    table.read(folder_.path());
    return table;
  }
  static std::string sealed(const std::string& body) {
    return fmt::format("{},\"sha256\":\"{}\"}}\n", body, io::sha256_hex(body));
  }
  std::string name(int number) const { return folder_.path(fmt::format("journal/{:06d}-000000.jsonl", number)); }

  TempFolder folder_;
  std::vector<Request> requests_;
};

TEST_F(JournalTest, GivesBackWhatWasWritten) {
  const Record first = record(0, 1, "x"), second = record(1, 0, "y \\u00e9 ü");
  write(1, {first, second});
  const RecordTable table = read();
  EXPECT_EQ(table.n_wanted(), 3);
  EXPECT_EQ(table.n_present(), 2);
  EXPECT_EQ(table.record(table.at(0, 1)), first.text);
  EXPECT_EQ(table.record(table.at(1, 0)), second.text);
  EXPECT_EQ(table.item(table.at(1, 0)), kItem);
  EXPECT_FALSE(table.at(0, 0).present());
  EXPECT_EQ(table.last_start(), 1);
}

TEST_F(JournalTest, ALineOfAnotherRunIsNoAnswer) {
  JournalWriter(folder_.path(), start(1), 0, "seed 0").append(record(0, 0, "x"), kItem);
  JournalWriter(folder_.path(), start(2), 0, "seed 7").append(record(0, 1, "y"), kItem);
  RecordTable table(requests_, "seed 0");
  table.read(folder_.path());
  EXPECT_TRUE(table.at(0, 0).present());
  EXPECT_FALSE(table.at(0, 1).present());
  EXPECT_EQ(table.damaged_lines(), 2);
}

TEST_F(JournalTest, ReadsEveryWriterOfAStart) {
  RecordTable table(requests_);
  JournalWriter first(folder_.path(), start(1), 0), second(folder_.path(), start(1), 3);
  first.append(record(0, 0, "x"), kItem);
  second.append(record(1, 0, "y"), kItem);
  Progress of_first, of_second;
  of_first.prefill_s = 1;
  of_first.decode_s = 5;
  of_first.prefill_rows = 10;
  of_first.layers = {{{5, 4, 3}, {0, 2, 1}}, {{9, 8, 7}, {0, 6, 5}}};
  of_second.prefill_s = 2;
  of_second.prefill_rows = 7;
  of_second.layers = {{{1, 1, 1}, {0, 1, 1}}, {{1, 1, 1}, {0, 1, 1}}};
  first.append_progress(of_first);
  second.append_progress(of_second);
  for (const auto& [rank, bytes] : {std::pair{0, first.bytes()}, std::pair{3, second.bytes()}})
    table.read_writer(folder_.path(), 1, rank, bytes);
  EXPECT_EQ(table.n_present(), 2);
  EXPECT_EQ(table.record(table.at(1, 0)), record(1, 0, "y").text);
  // Groups work side by side: seconds are those of the longest, rows are all.
  EXPECT_EQ(table.progress().prefill_s, 2);
  EXPECT_EQ(table.progress().decode_s, 5);
  EXPECT_EQ(table.progress().prefill_rows, 17);
  EXPECT_EQ(table.progress().layers.to_journal().dump(), "[[6,5,4,10,9,8],[0,3,2,0,7,6]]");
}

TEST_F(JournalTest, MissesWhatTheFileSystemDoesNotShowYet) {
  RecordTable table(requests_);
  JournalWriter writer(folder_.path(), start(1), 2);
  expect_error(ExitCode::stopped, {"000001-000002.jsonl", "again"},
               [&] { table.read_writer(folder_.path(), 1, 2, writer.bytes() + 1); });
}

TEST_F(JournalTest, CountsDamageAndKeepsTheRest) {
  write(1, {record(0, 0, "x"), record(0, 1, "y"), record(1, 0, "z")});
  const std::string whole = slurp(name(1));
  const std::size_t middle = whole.find(R"({"record":)", whole.find(R"("repeat":0)"));
  // A block of zeros in front of a line, and a torn last line followed by zeros.
  spit(name(1), whole.substr(0, middle) + std::string(300, '\0') + whole.substr(middle, whole.size() - middle - 9) +
                    std::string(4096, '\0'));
  spit(name(2), "");
  spit(name(3), std::string(4096, '\0'));
  const RecordTable table = read();
  EXPECT_EQ(table.damaged_lines(), 3);
  EXPECT_TRUE(table.at(0, 0).present());
  EXPECT_FALSE(table.at(0, 1).present());
  EXPECT_FALSE(table.at(1, 0).present());
  EXPECT_EQ(table.last_start(), 3);
}

TEST_F(JournalTest, SeesAChangeOfAnyByte) {
  write(1, {record(0, 0, "x"), record(0, 1, "y")});
  const std::string whole = slurp(name(1));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] ^= 1;
    spit(name(1), changed);
    EXPECT_GE(read().damaged_lines(), 1) << at;
  }
}

// A record of the right request that lacks a member, or has another in its place, is none: what reads it later need not
// fear it.
TEST_F(JournalTest, ARecordWithoutAllItsMembersIsDamage) {
  const std::string line = std::string(R"({"record":)") + record(0, 0, "x").text + R"(,"item":)" + kItem;
  write(1, {});
  const std::string header = slurp(name(1));
  spit(name(1), header + sealed(line));
  EXPECT_EQ(read().n_present(), 1);
  const std::pair<const char*, const char*> damages[] = {
      {R"("usage":)", R"("usagf":)"},
      {R"("reasoning_tokens":0)", R"("reasoning_tokens":"0")"},
      {R"("completion_tokens":1)", R"("completion_tokens":-1)"},
      {R"("result":{)", R"("result":5,"other":{)"},
      {R"("text":"x")", R"("text":7)"},
      {R"("in_thinking":false)", R"("in_thinking":0)"},
      {R"("finish_reason":"length",)", ""},
      {R"("ok":true)", R"("ok":1)"},
      {R"("ok":true)", R"("ok":false)"},
      {R"("kind":"generate_until")", R"("kind":"completion")"},
      {R"("item":{)", R"("item":5,"other":{)"},
      {R"("seconds":0.5)", R"("seconds":null)"},
  };
  for (const auto& [whole, damaged] : damages) {
    std::string other = line;
    ASSERT_NE(other.find(whole), std::string::npos) << whole;
    other.replace(other.find(whole), std::string(whole).size(), damaged);
    spit(name(1), header + sealed(other));
    const RecordTable table = read();
    EXPECT_EQ(table.n_present(), 0) << other;
    EXPECT_EQ(table.damaged_lines(), 1) << other;
  }
}

TEST_F(JournalTest, SurvivesEveryCutOfAFile) {
  write(1, {record(0, 0, "x"), record(0, 1, "y")});
  const std::string whole = slurp(name(1));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    spit(name(1), whole.substr(0, n));
    EXPECT_LE(read().n_present(), n + 1 == whole.size() ? 1 : 2);
  }
}

TEST_F(JournalTest, NeverTouchesAnEarlierFile) {
  write(1, {});
  expect_error(ExitCode::usage, {"000001-000000.jsonl"}, [&] { write(1, {}); });
}

TEST_F(JournalTest, CollapsesEqualRecordsAndRefusesUnequalOnes) {
  write(1, {record(0, 0, "x")});
  write(2, {record(0, 0, "x"), record(0, 1, "y")});
  EXPECT_EQ(read().n_present(), 2);
  write(3, {record(0, 1, "other")});
  expect_error(ExitCode::bad_input, {"000002-000000.jsonl", "000003-000000.jsonl", "\"a\"", "repeat 1"},
               [&] { read(); });
}

TEST_F(JournalTest, PrefersAGoodRecordToAFailedOneAndALaterFailureToAnEarlier) {
  write(1, {record(0, 0, "bad", false), record(0, 1, "good")});
  write(2, {record(0, 0, "good"), record(0, 1, "bad", false), record(1, 0, "first", false)});
  write(3, {record(1, 0, "second", false)});
  const RecordTable table = read();
  EXPECT_TRUE(table.at(0, 0).ok);
  EXPECT_TRUE(table.at(0, 1).ok);
  EXPECT_EQ(table.start_of(table.at(1, 0)), 3);
  EXPECT_EQ(table.n_failed(), 1);
  EXPECT_EQ(table.n_present(), 3);
}

// The same request with the same numbers is either finite or not.
TEST_F(JournalTest, AnAnswerAndAFailureOfTheSameNumbersContradictEachOther) {
  const Record good = record(0, 0, "good"), bad = record(0, 0, "bad", false, "nonfinite_value");
  const Record elsewhere = record(0, 0, "elsewhere", false, "nonfinite_value"), misfit = record(0, 0, "room", false);
  const std::pair<Record, Record> contradictions[] = {{good, bad}, {bad, good}, {bad, elsewhere}};
  for (const auto& [first, second] : contradictions) {
    std::filesystem::remove_all(folder_.path("journal"));
    write(1, {first});
    write(2, {second});
    expect_error(ExitCode::bad_input, {"000001-000000.jsonl", "000002-000000.jsonl", "(failed)", "\"a\"", "repeat 0"},
                 [&] { read(); });
  }
  const std::pair<Record, Record> together[] = {{bad, bad}, {misfit, bad}, {bad, misfit}, {misfit, good}};
  for (const auto& [first, second] : together) {
    std::filesystem::remove_all(folder_.path("journal"));
    write(1, {first});
    write(2, {second});
    EXPECT_EQ(read().n_present(), 1);
  }
}

TEST_F(JournalTest, AFailureThatWasAnsweredAgainOnDemandContradictsNothing) {
  const Record good = record(0, 0, "good"), bad = record(0, 0, "bad", false, "nonfinite_value");
  write(1, {bad});
  write_again(2, good, bad);
  EXPECT_TRUE(read().at(0, 0).ok);
  // Merged with a folder that never met the failure, in either order, and with one that met it as well.
  write(3, {good});
  write(4, {bad});
  EXPECT_TRUE(read().at(0, 0).ok);
  EXPECT_EQ(read().n_failed(), 0);
  write(5, {record(0, 0, "other")});  // two good ones stay a contradiction
  expect_error(ExitCode::bad_input, {"hold different answers"}, [&] { read(); });
}

// Only what a failure was asked for again with may differ from it.
TEST_F(JournalTest, AnAnswerGivenWhileOthersWereAskedForAgainContradictsAFailureElsewhere) {
  const Record good = record(0, 0, "good"), bad = record(0, 0, "bad", false, "nonfinite_value");
  const Record elsewhere = record(0, 0, "elsewhere", false, "nonfinite_value");
  const Record first = record(1, 0, "first"), other = record(1, 0, "other");
  const auto refused = [&](const std::string& one, const std::string& two) {
    expect_error(ExitCode::bad_input, {one, two, "hold different answers"}, [&] { read(); });
    std::filesystem::remove_all(folder_.path("journal"));
  };
  write(1, {bad});
  write(2, {good});
  refused("000001-", "000002-");
  write_again(1, good, elsewhere);  // another failure than the one of this folder
  write(2, {bad});
  refused("000001-", "000002-");
  write(1, {bad});
  write_again(2, elsewhere, bad);
  write_again(3, bad, elsewhere);  // fails as at first, which so stands
  write(4, {good});
  refused("000001-", "000004-");
  write(1, {bad});
  write_again(2, bad, bad);
  write(3, {good});
  refused("000001-", "000003-");
  write(1, {first});
  write_again(2, other, first);  // an answer is never replaced
  refused("000001-", "000002-");
  write(1, {bad});
  write_again(2, elsewhere, bad);
  write_again(3, good, elsewhere);
  EXPECT_TRUE(read().at(0, 0).ok);
}

TEST_F(JournalTest, ALineThatNamesNoRecordItReplacesIsDamaged) {
  write_again(1, record(0, 0, "good"), record(0, 0, "bad", false));
  const std::string whole = slurp(name(1));
  const std::size_t line = whole.find('\n') + 1;
  const std::string body = whole.substr(line, whole.rfind(R"(,"sha256")") - line);
  const std::size_t digits = body.find(R"("instead_of":")") + 14;
  for (const std::string& hash :
       {std::string(31, '0'), std::string(32, 'x'), std::string(16, '0') + "-" + std::string(15, '0')}) {
    spit(name(1), whole.substr(0, line) + sealed(body.substr(0, digits) + hash + body.substr(digits + 32)));
    EXPECT_EQ(read().damaged_lines(), 1) << hash;
  }
  spit(name(1), whole);
  EXPECT_EQ(read().damaged_lines(), 0);
}

// Less room, or none, says less of a request than what was found when it was computed.
TEST_F(JournalTest, AMisfitReplacesNoFailureThatWasComputed) {
  const Record bad = record(0, 0, "bad", false, "nonfinite_value"), misfit = record(0, 0, "room", false);
  write(1, {bad});
  RecordTable retrying = read();
  retrying.forget_failed();
  EXPECT_EQ(retrying.n_present(), 0);
  {
    JournalWriter writer(folder_.path(), start(2), 0);
    writer.append(misfit, kItem, retrying.forgotten(0, 0));
    retrying.read_writer(folder_.path(), 2, 0, writer.bytes());
  }
  for (const RecordTable& table : {std::move(retrying), read()}) {  // the start itself, and one after it
    EXPECT_EQ(table.record(table.at(0, 0)), bad.text);
    EXPECT_EQ(table.n_failed(), 1);
    EXPECT_EQ(table.n_present(), 1);
  }
}

TEST_F(JournalTest, NamesOfFilesAreReadAsTheyAreWritten) {
  EXPECT_EQ(journal_name({12, 3}), "000012-000003.jsonl");
  EXPECT_EQ(read_journal_name("000012-000003.jsonl").start, 12);
  EXPECT_EQ(read_journal_name("000012-000003.jsonl").rank, 3);
  for (const char* other :
       {"000012.jsonl", "000012-.jsonl", "000012-000003.json", "x", "000012-000003.jsonl~", "2147483647-000000.jsonl"})
    EXPECT_EQ(read_journal_name(other).start, 0) << other;
}

TEST_F(JournalTest, ForgetsFailuresWhenAsked) {
  write(1, {record(0, 0, "bad", false, "nonfinite_value"), misfit(0, 1, 1000), record(1, 0, "good")});
  RecordTable table = read();
  EXPECT_EQ(table.n_misfits(), 1);
  table.forget_misfits(999);
  EXPECT_EQ(table.n_present(), 3);  // it would not fit again
  table.forget_misfits(1000);
  EXPECT_EQ(table.n_present(), 2);
  EXPECT_EQ(table.n_misfits(), 0);
  EXPECT_TRUE(table.at(0, 0).present());
  EXPECT_FALSE(table.at(0, 1).present());
  table.forget_failed();
  EXPECT_EQ(table.n_present(), 1);
  EXPECT_EQ(table.n_failed(), 0);
  RecordTable unbounded = read();
  unbounded.forget_misfits(0);
  EXPECT_EQ(unbounded.n_present(), 2);
}

TEST_F(JournalTest, IgnoresRecordsOfOtherRequests) {
  Record other = record(0, 0, "x");
  other.text.replace(other.text.find(requests_[0].sha256), 64, std::string(64, '0'));
  write(1, {other});
  EXPECT_EQ(read().n_present(), 0);
}

TEST_F(JournalTest, AddsUpTheSecondsOfEveryStart) {
  for (const int number : {1, 2}) {
    JournalWriter writer(folder_.path(), start(number), 0);
    Progress progress;
    progress.prefill_s = 1;
    progress.decode_rows = 10;
    writer.append_progress(progress);
    progress.prefill_s = 2;
    writer.append_progress(progress);  // the last line of a start counts
  }
  const RecordTable table = read();
  EXPECT_DOUBLE_EQ(table.progress().prefill_s, 4);
  EXPECT_EQ(table.progress().decode_rows, 20);
}

TEST_F(JournalTest, IsFoundUnderItsNameAfterAPowerLoss) {
  synced().clear();
  const JournalWriter writer(folder_.path(), start(1), 0);
  const std::string folder = std::filesystem::canonical(folder_.path()).string();
  for (const std::string& path : {folder + "/journal/000001-000000.jsonl", folder + "/journal", folder})
    EXPECT_NE(std::find(synced().begin(), synced().end(), path), synced().end()) << path;
}

TEST_F(JournalTest, IsDurableInTimeAlsoWhereNoLineFollows) {
  JournalWriter writer(folder_.path(), start(1), 0, "", 0.05);
  synced().clear();
  writer.sync_if_due();
  EXPECT_TRUE(synced().empty());  // there is nothing to be done
  writer.append(record(0, 0, "x"), kItem);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  writer.sync_if_due();
  ASSERT_EQ(synced().size(), 1U);
  EXPECT_TRUE(synced()[0].ends_with("000001-000000.jsonl")) << synced()[0];
  writer.sync_if_due();
  EXPECT_EQ(synced().size(), 1U);
}

TEST_F(JournalTest, ReadsMoreFilesThanAProcessMayOpen) {
  constexpr int kFiles = 300, kMayOpen = 200;
  requests_ = test::read(test::line("generate_until", R"({"context":"a","repeats":300})", "a")).requests;
  for (int repeat = 0; repeat < kFiles; ++repeat) write(repeat + 1, {record(0, repeat, std::to_string(repeat))});
  const RecordTable table = read();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{kMayOpen, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int turn = 0; turn < 2; ++turn) {
    for (int repeat = 0; repeat < kFiles; ++repeat)
      EXPECT_EQ(table.record(table.at(0, repeat)), record(0, repeat, std::to_string(repeat)).text);
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace bathys::eval
