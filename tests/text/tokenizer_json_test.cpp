#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"
#include "text/normalize.hpp"
#include "text/tokenizer.hpp"
#include "text/unigram.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

const fs::path spiece_model = fs::path(REELMESH_TEST_DATA) / "tokenizer/spiece.model";
const fs::path json_data = fs::path(REELMESH_TEST_DATA) / "tokenizer_json";
const fs::path data_of_transformers_5 = fs::path(REELMESH_TEST_DATA) / "tokenizer_of_transformers5";

json read_json(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return json::parse(file);
}

/// A JSON merge patch, except that null stays null.
void merge(json& base, const json& change) {
  if (!change.is_object() || !base.is_object()) {
    base = change;
    return;
  }
  for (const auto& [key, value] : change.items()) merge(base[key], value);
}

/// Compares the results of a tokenizer with those of the reference: its `column` in
/// odd_prompts.json.
void expect_results(const Tokenizer& tokenizer, const json& prompts, std::size_t column) {
  ASSERT_EQ(prompts.size(), 1000U);
  for (const auto& prompt : prompts) {
    const auto length = prompt["max_length"].get<std::size_t>();
    const json& result = prompt["results"][prompt["of"][column].get<std::size_t>()];
    auto expected = result["ids"].get<std::vector<std::int32_t>>();
    expected.resize(length, 0);
    const Encoded got =
        tokenizer.encode(prompt["text"].get<std::string>(), static_cast<std::int64_t>(length));
    ASSERT_EQ(got.ids, expected) << prompt["text"].dump();
    ASSERT_EQ(got.kept, result["kept"].get<std::int64_t>()) << prompt["text"].dump();
    ASSERT_EQ(got.cut, result["cut"].get<std::string>()) << prompt["text"].dump();
  }
}

TEST(OddPrompts, OfTheSlowTokenizerWithAndWithoutLegacy) {
  const json data = read_json(json_data / "odd_prompts.json");
  const test::TempFolder folder;
  fs::copy(spiece_model, folder.path());
  std::size_t column = 0;
  for (const char* name : {"legacy", "not legacy", "no prefix"}) {
    SCOPED_TRACE(name);
    std::ofstream(folder / "tokenizer_config.json") << data["slow"][name];
    expect_results(Tokenizer::open(folder.path()), data["prompts"], column++);
  }
}

TEST(OddPrompts, OfTokenizerJsonInAllForms) {
  const json data = read_json(json_data / "odd_prompts.json");
  const json base = read_json(json_data / "tokenizer.json");
  const test::TempFolder folder;
  std::size_t column = 3;
  for (const char* name :
       {"as T5TokenizerFast writes it", "as of T5", "first", "first in words", "never",
        "whole texts", "as of UMT5", "bytes, no table", "some bytes", "added tokens", "stripped"}) {
    SCOPED_TRACE(name);
    json variant = base;
    merge(variant, data["changes"].at(name));
    std::ofstream(folder / "tokenizer.json") << variant;
    expect_results(Tokenizer::open(folder.path()), data["prompts"], column++);
  }
  EXPECT_EQ(column, data["prompts"][0]["of"].size());
}

TEST(OddPrompts, OfTheFolderThatTransformers5Writes) {
  EXPECT_FALSE(fs::exists(data_of_transformers_5 / "spiece.model"));
  expect_results(Tokenizer::open(data_of_transformers_5),
                 read_json(data_of_transformers_5 / "odd_prompts.json")["prompts"], 0);
}

/// A folder with the files that a test asks for.
class TokenizerJsonFile : public testing::Test {
 protected:
  void SetUp() override { file_ = read_json(data_of_transformers_5 / "tokenizer.json"); }
  Tokenizer open(const std::string& class_name = "") const {
    test::write_file(path_, file_.dump());
    return Tokenizer::open(folder_.path(), class_name);
  }
  void refused(const std::string& place, const std::string& expected) {
    test::expect_error(
        Status::data, [&] { open(); }, path_.string() + place, expected);
    SetUp();
  }

  test::TempFolder folder_;
  fs::path path_ = folder_ / "tokenizer.json";
  json file_;
};

// T5Tokenizer of transformers 4.57 divides the text of this test into ▁ and ▁a.
TEST_F(TokenizerJsonFile, DecidesWhereTheReferenceReadsIt) {
  const std::string text = "▁a";
  const auto from = [&](const std::string& class_name) {
    const std::vector<std::int32_t> ids = open(class_name).encode(text, 3).ids;
    return ids == std::vector<std::int32_t>{3, 1, 0} ? "tokenizer.json" : "spiece.model";
  };
  EXPECT_STREQ(from("T5Tokenizer"), "tokenizer.json") << "the only file";
  fs::copy(fs::path(REELMESH_SOURCE) / "inputs/demo_model/tokenizer/spiece.model", folder_.path());
  EXPECT_STREQ(from("T5Tokenizer"), "spiece.model");
  EXPECT_STREQ(from("T5TokenizerFast"), "tokenizer.json");
  EXPECT_STREQ(from(""), "tokenizer.json");
  std::ofstream(folder_ / "tokenizer_config.json") << R"({"tokenizer_class": "T5Tokenizer"})";
  EXPECT_STREQ(from("T5Tokenizer"), "spiece.model");
  fs::copy(data_of_transformers_5 / "tokenizer_config.json", folder_.path(),
           fs::copy_options::overwrite_existing);
  EXPECT_STREQ(from("T5Tokenizer"), "tokenizer.json") << "written by transformers 5";

  // The class is that of model_index.json.
  fs::remove(folder_ / "tokenizer_config.json");
  ModelPaths paths{.root = folder_.path(), .tokenizer = folder_.path()};
  EXPECT_EQ(Tokenizer::open(paths).encode(text, 2).ids[0], 3);
  test::write_file(folder_ / "model_index.json",
                   R"({"_class_name": "A", "tokenizer": ["transformers", "T5Tokenizer"]})");
  EXPECT_EQ(Tokenizer::open(paths).encode(text, 2).ids[0], 170);
}

TEST_F(TokenizerJsonFile, IsRefusedByThePlaceOfWhatIsUnknown) {
  const auto set = [&](const char* pointer, const json& value) {
    file_[json::json_pointer(pointer)] = value;
  };
  file_ = json::array();
  refused(": found array", "expected an object");
  set("/model/type", "BPE");
  refused(": model.type: found \"BPE\"", "expected \"Unigram\"");
  set("/model/unk_id", nullptr);
  refused(": model.unk_id: found null", "expected an integer from 0 to 271");
  set("/model/unk_id", 272);
  refused(": model.unk_id: found 272", "expected an integer from 0 to 271");
  set("/model/unk_id", -1);
  refused(": model.unk_id: found -1", "expected an integer");
  set("/model/unk_id", 18446744073709551615ULL);
  refused(": model.unk_id: found 18446744073709551615", "expected an integer");
  set("/model/vocab", json::array());
  refused(": model.vocab: found array", "expected pieces");
  set("/model/vocab", json::object());
  refused(": model.vocab: found object", "expected an array");
  set("/model/vocab/7", json::array({"a"}));
  refused(": model.vocab[7]: found array", "expected a piece and its score");
  set("/model/vocab/7", json::array({"a", "b"}));
  refused(": model.vocab[7][1]: found \"b\"", "expected a number");
  set("/model/vocab/1/0", "<s>");
  refused(": model.vocab: piece 1 is \"<s>\"", "expected \"</s>\"");
  set("/normalizer", {{"type", "NFKC"}});
  refused(": normalizer.type: found \"NFKC\"", "expected Precompiled, Strip, Replace or Sequence");
  set("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}});
  refused(": normalizer.normalizers[0].type: found \"Lowercase\"", "expected Precompiled");
  set("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "\\d"}}}, {"content", "0"}});
  refused(": normalizer.pattern.Regex: found", "expected \" {2,}\"");
  const json table = read_json(json_data / "tokenizer.json")["normalizer"]["normalizers"][0];
  set("/normalizer", {{"type", "Sequence"}, {"normalizers", {table, table}}});
  refused(": normalizer.normalizers[1]: found object", "expected one Precompiled");
  set("/pre_tokenizer/pretokenizers", std::vector<json>(9, {{"type", "WhitespaceSplit"}}));
  refused(": pre_tokenizer.pretokenizers[8]: found object", "expected at most 8 steps");
  for (const char* damaged : {"", "AAAA", "!", "AAAAAAAA", "AQ==", "//////////////8A"}) {
    set("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", damaged}});
    refused(": normalizer.precompiled_charsmap: ", "expected ");
  }
  set("/pre_tokenizer", {{"type", "ByteLevel"}});
  refused(": pre_tokenizer.type: found \"ByteLevel\"",
          "expected WhitespaceSplit, Metaspace or Sequence");
  set("/pre_tokenizer/pretokenizers/1/prepend_scheme", "last");
  refused(": pre_tokenizer.pretokenizers[1].prepend_scheme: found \"last\"",
          "expected always, first or never");
  set("/pre_tokenizer/pretokenizers/1/add_prefix_space", false);
  refused(": pre_tokenizer.pretokenizers[1].add_prefix_space: found false", "expected true");
  set("/pre_tokenizer/pretokenizers/1/replacement", "__");
  refused(": pre_tokenizer.pretokenizers[1].replacement: found", "expected one character");
  set("/post_processor", nullptr);
  refused(": post_processor: found null", "expected an object");
  set("/post_processor/single/1/SpecialToken/id", "<s>");
  refused(": post_processor.single[1].SpecialToken.id: found \"<s>\"", "expected \"</s>\"");
  set("/post_processor/special_tokens/<~1s>/ids", {2});
  refused(": post_processor.special_tokens.</s>.ids[0]: found 2",
          "expected an integer from 1 to 1");
  set("/added_tokens/3/content", "");
  refused(": added_tokens[3].content: found \"\"", "expected a name");
  set("/added_tokens/3/id", 4);
  refused(": added_tokens[3].id: found 4", "expected an integer from 172 to 172");
  set("/added_tokens/3/lstrip", 1);
  refused(": added_tokens[3].lstrip: found 1", "expected true or false");

  test::expect_error(
      Status::data,
      [&] {
        test::write_file(path_, "{");
        Tokenizer::open(folder_.path());
      },
      path_.string() + ": not valid JSON");
  fs::remove(path_);
  fs::create_directory(path_);
  test::expect_error(
      Status::data, [&] { Tokenizer::open(folder_.path()); }, path_.string());
}

TEST_F(TokenizerJsonFile, TakesAnyBytes) {
  const Tokenizer tokenizer = open();
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string text(static_cast<std::size_t>(i), ' ');
    for (char& c : text) c = static_cast<char>(random());
    for (const std::int32_t id : tokenizer.encode(text, 40).ids) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, tokenizer.vocabulary_size());
    }
  }
  EXPECT_EQ(tokenizer.vocabulary_size(), 272);
  EXPECT_EQ(tokenizer.encode("\xff", 4).ids, tokenizer.encode("\ufffd", 4).ids);
}

TEST(Unigram, ChoosesTheBestPathAndJoinsUnknownCharacters) {
  const auto ids = [](const Unigram& model, std::wstring_view word) {
    std::vector<std::int32_t> found;
    model.append_ids(word, found);
    return found;
  };
  const Unigram model({L"<unk>", L"a", L"b", L"ab", L"abc", L"a", L""},
                      {0, -1, -1, -2.5, -9, -1, 0}, 0, false);
  EXPECT_THAT(ids(model, L""), IsEmpty());
  EXPECT_THAT(ids(model, L"ab"), ElementsAre(5, 2)) << "of equal pieces the last";
  EXPECT_THAT(ids(model, L"abc"), ElementsAre(4));
  EXPECT_THAT(ids(model, L"xyaz"), ElementsAre(0, 5, 0));
  EXPECT_THAT(ids(model, L"x<unk>y"), ElementsAre(0)) << "the piece counts as unknown, too";

  // As tokenizers: a later path has to be better.
  const Unigram equal({L"<unk>", L"a", L"b", L"ab"}, {0, -1, -1, -2}, 0, false);
  EXPECT_THAT(ids(equal, L"ab"), ElementsAre(3)) << "of equal paths the first";

  const Unigram bytes({L"<unk>", L"a", L"<0xC3>", L"<0xA4>", L"<0x78>"}, {0, -1, -2, -2, -2}, 0,
                      true);
  EXPECT_THAT(ids(bytes, L"a\u00e4x"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(ids(bytes, L"a\u00e4y"), ElementsAre(1, 0)) << "<0x79> is missing";
}

TEST(Charsmap, RefusesTextsThatWouldGrowWithoutLimit) {
  const json table = read_json(json_data / "tokenizer.json")["normalizer"]["normalizers"][0];
  const std::string bytes = *decode_base64(table["precompiled_charsmap"].get<std::string>());
  const auto with_text = [&](std::size_t size) {
    return Charsmap(bytes + std::string(size, 'x') + '\0', "a table");
  };
  EXPECT_NO_THROW(with_text(1024));
  test::expect_error(
      Status::data, [&] { with_text(1025); }, "a table: damaged");
}

TEST(Base64, IsDecodedOrRefused) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("AP9hYg=="), std::string("\0\xff"
                                                   "ab",
                                                   4));
  EXPECT_EQ(decode_base64("YWI="), "ab");
  EXPECT_EQ(decode_base64("YWJj"), "abc");
  for (const char* wrong : {"Y", "YW=j", "YWJ", "YW J", "====", "=AAA"}) {
    EXPECT_EQ(decode_base64(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace reelmesh
