// SPDX-License-Identifier: Apache-2.0
// What of tokenizer.json is taken and what is refused.
#include "core/error.hpp"
#include "core/json.hpp"
#include "tokenizer/fixtures.hpp"
#include "tokenizer/tokenizer.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::tokenizer {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<TokenId>;
const std::string kOdd = BATHYS_ODD_TOKENIZERS;
const std::string kFiles = BATHYS_TEST_DATA "/cases/files/";

std::vector<std::string> texts() {
  std::vector<std::string> out;
  for (const Json& line : test::read_json_lines(kFiles + "tokenizer_texts.jsonl"))
    out.push_back(line.get<std::string>());
  return out;
}

Json expected() {
  return parse_json(test::read_text(kFiles + "tokenizer_expected.json"), "expected", ExitCode::bad_input);
}

// The message with which `text` is refused, "" if it is not.
std::string refusal(std::string_view text) {
  try {
    (void)Tokenizer::from_json(text, "t.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("t.json"));
    return error.what();
  }
  return "";
}

std::string refusal_of(const std::string& odd) { return refusal(test::read_text(kOdd + "/" + odd + ".json")); }

std::string changed(const std::function<void(Json&)>& change) {
  static const Json nano = parse_json(test::read_text(BATHYS_NANO_TOKENIZER), "nano", ExitCode::bad_input);
  Json copy = nano;
  change(copy);
  return copy.dump();
}

TEST(TokenizerFile, ReadsEverySpellingOfMergesAlike) {
  const Json plain = expected().at("plain");
  for (const std::string name : {"c05_ok_pairs", "c05_ok_strings", "c05_ok_strings_version_line",
                                 "c05_ok_escaped_ascii", "c05_two_merges_swapped_either"}) {
    const Tokenizer tokenizer = Tokenizer::from_file(kOdd + "/" + name + ".json");
    std::size_t i = 0;
    for (const std::string& text : texts())
      EXPECT_EQ(tokenizer.encode(text), plain.at(i++).get<Ids>()) << name << " " << text;
  }
}

TEST(TokenizerFile, RefusesMergesThatContradict) {
  EXPECT_THAT(refusal_of("c05_mixed_refuse"), HasSubstr("mixes"));
  EXPECT_THAT(refusal_of("c05_no_merges_refuse"), HasSubstr("model.merges is missing"));
  EXPECT_THAT(refusal_of("c05_empty_merges_refuse"), HasSubstr("model.merges is empty"));
  EXPECT_THAT(refusal_of("c05_triple_refuse"), HasSubstr("model.merges[3] has more than two parts"));
  EXPECT_THAT(refusal_of("c05_unknown_part_refuse"), HasSubstr("model.merges[700] names \"☃\""));
  EXPECT_THAT(refusal_of("c05_duplicate_merge_refuse"), HasSubstr("model.merges[744] repeats"));
  EXPECT_THAT(refusal_of("c05_bom_either"), HasSubstr("byte order mark"));
}

TEST(TokenizerFile, MatchesAddedTokensInsideWordsLongestFirst) {
  const Tokenizer tokenizer = Tokenizer::from_file(kOdd + "/c07_letters.json");
  const Json wanted = expected().at("differs").at("c07_letters");
  EXPECT_EQ(wanted.size(), 3U);
  for (const auto& [index, ids] : wanted.items()) {
    EXPECT_EQ(tokenizer.encode(texts().at(std::stoul(index))), ids.get<Ids>()) << index;
  }
}

TEST(TokenizerFile, RefusesAddedTokensThatContradict) {
  EXPECT_THAT(refusal_of("c07_flags"), HasSubstr("single_word"));
  EXPECT_THAT(refusal_of("c07_id_beyond_vocab_refuse"), HasSubstr("1025 ids"));
  EXPECT_THAT(refusal_of("c07_id_hole_refuse"), HasSubstr("5000"));
  EXPECT_THAT(refusal_of("c07_same_id_refuse"), HasSubstr("\"<again>\" has the id 1023"));
  EXPECT_THAT(refusal_of("c07_content_in_vocab_other_id_refuse"), HasSubstr("\"ü\" has id 1014"));
  EXPECT_THAT(refusal_of("c07_empty_content_refuse"), HasSubstr("content"));
  // A token of the vocabulary may be listed once more, none twice: which of its flags would count?
  const auto with_added = [](int times) {
    return changed([times](Json& j) {
      Json token = j["added_tokens"][0];
      token["content"] = "a";
      token["id"] = j["model"]["vocab"]["a"];
      for (int i = 0; i < times; ++i) j["added_tokens"].push_back(token);
    });
  };
  EXPECT_EQ(refusal(with_added(1)), "");
  EXPECT_THAT(refusal(with_added(2)), HasSubstr("repeats added_tokens["));
  EXPECT_THAT(refusal(changed([](Json& j) {
                Json token = j["added_tokens"][1];
                token["special"] = !token["special"].get<bool>();
                j["added_tokens"].push_back(token);
              })),
              HasSubstr("repeats added_tokens[1] ("));
}

TEST(TokenizerFile, RefusesEachFeatureItDoesNotImplementByName) {
  const std::vector<std::pair<std::string, std::function<void(Json&)>>> changes = {
      {"model.dropout", [](Json& t) { t["model"]["dropout"] = 0.1; }},
      {"model.byte_fallback", [](Json& t) { t["model"]["byte_fallback"] = true; }},
      {"model.ignore_merges", [](Json& t) { t["model"]["ignore_merges"] = true; }},
      {"model.unk_token", [](Json& t) { t["model"]["unk_token"] = "<unk>"; }},
      {"model.fuse_unk", [](Json& t) { t["model"]["fuse_unk"] = true; }},
      {"model.end_of_word_suffix", [](Json& t) { t["model"]["end_of_word_suffix"] = "</w>"; }},
      {"model.continuing_subword_prefix", [](Json& t) { t["model"]["continuing_subword_prefix"] = "##"; }},
      {"model.type", [](Json& t) { t["model"]["type"] = "Unigram"; }},
      {"model.novelty", [](Json& t) { t["model"]["novelty"] = 1; }},
      {"normalizer.type",
       [](Json& t) {
         t["normalizer"] = {{"type", "NFC"}};
       }},
      {"normalizer.normalizers",
       [](Json& t) {
         t["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
       }},
      {"pre_tokenizer", [](Json& t) { t.erase("pre_tokenizer"); }},
      {"pretokenizers[0].pattern.Regex",
       [](Json& t) { t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\p{N}"; }},
      {"pretokenizers[1].behavior", [](Json& t) { t["pre_tokenizer"]["pretokenizers"][1]["behavior"] = "Removed"; }},
      {"pretokenizers[2].invert", [](Json& t) { t["pre_tokenizer"]["pretokenizers"][2]["invert"] = true; }},
      {"pretokenizers[3].use_regex", [](Json& t) { t["pre_tokenizer"]["pretokenizers"][3]["use_regex"] = true; }},
      {"pretokenizers[3].add_prefix_space",
       [](Json& t) { t["pre_tokenizer"]["pretokenizers"][3]["add_prefix_space"] = true; }},
      {"post_processor.type",
       [](Json& t) {
         t["post_processor"] = {{"type", "TemplateProcessing"}};
       }},
      {"decoder.type",
       [](Json& t) {
         t["decoder"] = {{"type", "Metaspace"}};
       }},
      {"truncation",
       [](Json& t) {
         t["truncation"] = {{"max_length", 5}};
       }},
      {"padding",
       [](Json& t) {
         t["padding"] = {{"pad_id", 2}};
       }},
      {"version", [](Json& t) { t["version"] = "2.0"; }},
      {"surprise", [](Json& t) { t["surprise"] = nullptr; }},
      {"added_tokens[4].lstrip", [](Json& t) { t["added_tokens"][4]["lstrip"] = true; }},
      {"added_tokens[4].id", [](Json& t) { t["added_tokens"][4]["id"] = -1; }},
      {"added_tokens[4].id", [](Json& t) { t["added_tokens"][4]["id"] = 1004.0; }},
      {"added_tokens[4].extra", [](Json& t) { t["added_tokens"][4]["extra"] = 1; }},
      {"model.vocab", [](Json& t) { t["model"]["vocab"] = nullptr; }},
      {"model.vocab[\"a\"]", [](Json& t) { t["model"]["vocab"]["a"] = "67"; }},
      {"model.vocab[\"a\"]", [](Json& t) { t["model"]["vocab"]["a"] = -1; }},
      {"model.vocab[\"a\"]", [](Json& t) { t["model"]["vocab"]["a"] = 67.0; }},
      {"model.vocab[\"a\"]", [](Json& t) { t["model"]["vocab"]["a"] = Json::array({67}); }},
      {"2147483647", [](Json& t) { t["model"]["vocab"]["a"] = 2147483647; }},
      {"the byte 0x61",
       [](Json& t) {
         t["model"]["vocab"].erase("a");
         t["model"]["vocab"]["zzzz"] = 67;
       }},
      {"no token has the id 67", [](Json& t) { t["model"]["vocab"].erase("a"); }},
      {"model.vocab gives the id 68", [](Json& t) { t["model"]["vocab"]["a"] = 68; }},
      {"empty token", [](Json& t) { t["model"]["vocab"][""] = 1024; }},
      {"model.merges", [](Json& t) { t["model"]["merges"] = "a b"; }},
      {"model.merges[0]", [](Json& t) { t["model"]["merges"][0] = 1; }},
      {"model.merges[0]", [](Json& t) { t["model"]["merges"][0] = Json::array({"a"}); }},
      {"model.merges[0]",
       [](Json& t) {
         t["model"]["merges"][0] = Json::array({"a", Json::array({"b"})});
       }},
      {"model.merges[0]",
       [](Json& t) {
         t["model"]["merges"][0] = Json::array({"a", 1});
       }},
      {"model.merges[0]", [](Json& t) { t["model"]["merges"] = Json::array({"a b c"}); }},
      {"model.merges[0]", [](Json& t) { t["model"]["merges"] = Json::array({"ab"}); }},
      {"#version",
       [](Json& t) {
         t["model"]["merges"] = Json::array({"t h", "#version: 0.2"});
       }},
      {"makes \"zq\"",
       [](Json& t) {
         t["model"]["merges"][0] = Json::array({"z", "q"});
       }},
  };
  for (const auto& [named, change] : changes) EXPECT_THAT(refusal(changed(change)), HasSubstr(named));
  EXPECT_EQ(refusal(changed([](Json& t) {
              t["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
            })),
            "");
}

TEST(TokenizerFile, NamesWhatStandsInItsPlace) {
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 57934\n"),
              HasSubstr("Git LFS pointer"));
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  EXPECT_THAT(refusal("<!DOCTYPE html>"), HasSubstr("not JSON at byte"));
  EXPECT_THAT(refusal("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(refusal("3"), HasSubstr("expected an object"));
  EXPECT_THROW((void)Tokenizer::from_file(kOdd + "/absent.json"), Error);
  EXPECT_THROW((void)Tokenizer::from_file(kOdd), Error);
}

TEST(TokenizerFile, SurvivesHostileJson) {
  EXPECT_THAT(refusal(std::string(1'000'000, '[')), HasSubstr("nested more than"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_THAT(refusal(objects), HasSubstr("nested more than"));
  EXPECT_THAT(refusal(R"({"version":"1.0","version":"1.0"})"), HasSubstr("twice"));
  EXPECT_THAT(refusal(R"({"model":{"vocab":{"a":0,"\u0061":1}}})"), HasSubstr("missing"));
  EXPECT_THAT(refusal(R"({"version":"\ud800"})"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(std::string("{\"version\":\"\0\"}", 15)), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{\"version\":\"\xFF\"}"), HasSubstr("not JSON"));
  const std::string whole = test::read_text(BATHYS_NANO_TOKENIZER);
  EXPECT_THAT(refusal(whole + std::string("\0x", 2)),
              HasSubstr("not JSON at byte " + std::to_string(whole.size() + 1) + ": a NUL byte"));
  for (std::size_t size = 1; size + 1 < whole.size(); size += 997)
    EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
  std::string twice = whole;
  const std::size_t at = twice.find("\"!\": 3");
  ASSERT_NE(at, std::string::npos);
  twice.replace(at, 6, "\"\\u0022\": 3");
  EXPECT_THAT(refusal(twice), HasSubstr("twice"));
}

TEST(TokenizerFile, TakesTheSizeOfTheVocabularyFromTheConfigWhereGiven) {
  const std::string text = test::read_text(BATHYS_NANO_TOKENIZER);
  EXPECT_EQ(Tokenizer::from_json(text, "t.json", 1024).vocab_size(), 1024);
  try {
    (void)Tokenizer::from_json(text, "t.json", 1032);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("vocab_size 1032"));
  }
}

}  // namespace
}  // namespace bathys::tokenizer
