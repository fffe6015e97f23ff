#include "text/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "text/spaces.hpp"
#include "text/train.hpp"

namespace reelmesh {
namespace {

using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path data = std::filesystem::path(REELMESH_TEST_DATA) / "tokenizer";

/// A temporary folder for one test, removed by the destructor.
class Folder {
 public:
  Folder() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(testing::TempDir()) /
            ("reelmesh_text_" + std::string(test->name()) + std::to_string(std::random_device()()));
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

template <class F>
void expect_error(Status status, const std::string& part, F&& f) {
  try {
    f();
    ADD_FAILURE() << "no error with " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(Tokenizer, GivesTheIdsOfTheReference) {
  const Tokenizer tokenizer = Tokenizer::open(data);
  const auto cases = nlohmann::json::parse(read(data / "prompts.json"));
  ASSERT_GE(cases.size(), 60U);
  for (const auto& c : cases) {
    SCOPED_TRACE(c["text"].dump());
    const auto length = c["max_length"].get<std::size_t>();
    const Encoded got =
        tokenizer.encode(c["text"].get<std::string>(), static_cast<std::int64_t>(length));
    auto expected = c["ids"].get<std::vector<std::int32_t>>();
    expected.resize(length, 0);
    EXPECT_EQ(got.ids, expected);
    EXPECT_EQ(got.kept, c["kept"].get<std::int64_t>());
    EXPECT_EQ(got.cut, c["cut"].get<std::string>());
  }
}

TEST(Tokenizer, PadsAndEnds) {
  const Tokenizer tokenizer = Tokenizer::open(data);
  EXPECT_THAT(tokenizer.encode("", 4).ids, ElementsAre(1, 0, 0, 0));
  EXPECT_EQ(tokenizer.encode("", 4).kept, 1);
  EXPECT_EQ(tokenizer.vocabulary_size(), 1100);
  EXPECT_THAT(tokenizer.encode("<extra_id_0><extra_id_99>", 3).ids, ElementsAre(1099, 1000, 1));
  EXPECT_THROW(tokenizer.encode("a", 0), Error);
}

TEST(Tokenizer, TakesIdsAsItWouldGiveThem) {
  const Tokenizer tokenizer = Tokenizer::open(data);
  const Encoded encoded = tokenizer.encode("a blue cube turns slowly <extra_id_0>", 20);
  const std::vector<std::int32_t> whole = encoded.ids;
  const std::vector<std::int32_t> kept(whole.begin(), whole.begin() + encoded.kept);
  for (const auto& ids : {whole, kept}) {
    const Encoded taken = tokenizer.accept(ids, 20, "line 1");
    EXPECT_EQ(taken.ids, whole);
    EXPECT_EQ(taken.kept, encoded.kept);
    EXPECT_EQ(taken.cut, "");
  }
  EXPECT_EQ(tokenizer.accept(kept, encoded.kept, "line 1").ids, kept);
  const auto error = [&](const std::vector<std::int32_t>& ids) {
    try {
      (void)tokenizer.accept(ids, 5, "line 1");
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::usage);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error({5, 6, 7, 1}), "");
  EXPECT_EQ(error({5, 6, 0, 7, 1}), "") << "<pad> may stand in a text";
  EXPECT_EQ(error({5, 6, 7, 8, 9, 1}), "line 1: found 6 ids, expected at most 5");
  EXPECT_EQ(error({5, 1100, 1}), "line 1: id 1 (counted from 0) is 1100, expected 0 to 1099");
  EXPECT_EQ(error({-1, 1}), "line 1: id 0 (counted from 0) is -1, expected 0 to 1099");
  EXPECT_EQ(error({5, 6, 0}),
            "line 1: found 6 as last id, expected 1 (</s>), followed by nothing but 0 (<pad>)");
  EXPECT_NE(error({}), "");
  EXPECT_NE(error({0, 0}), "");
}

TEST(Tokenizer, SaysWhichWordsAreCut) {
  const Tokenizer tokenizer = Tokenizer::open(data);
  const std::string text = "the camera moves slowly above a green hill";
  const std::int64_t whole = tokenizer.encode(text, 100).kept;
  EXPECT_EQ(tokenizer.encode(text, whole).cut, "");
  EXPECT_EQ(tokenizer.encode(text, whole - 1).kept, whole - 1);
  EXPECT_THAT(text, testing::EndsWith(tokenizer.encode(text, whole - 2).cut));
  EXPECT_FALSE(tokenizer.encode(text, whole - 2).cut.empty());
}

// As transformers' T5Tokenizer: extra_ids of tokenizer_config.json; 100 if file or key is missing.
TEST(Tokenizer, HasAsManySentinelsAsItsConfigSays) {
  const Folder folder;
  std::filesystem::copy(data / "spiece.model", folder.path());
  const std::filesystem::path config = folder.path() / "tokenizer_config.json";
  const auto open = [&] { return Tokenizer::open(folder.path()); };
  EXPECT_EQ(open().vocabulary_size(), 1100);
  for (const char* usual : {"{}", R"({"legacy": true})", R"({"extra_ids": null})"}) {
    write(config, usual);
    EXPECT_EQ(open().vocabulary_size(), 1100) << usual;
  }

  write(config, R"({"extra_ids": 3})");
  const Tokenizer three = open();
  EXPECT_EQ(three.vocabulary_size(), 1003);
  EXPECT_THAT(three.encode("<extra_id_0> <extra_id_2>", 3).ids, ElementsAre(1002, 1000, 1));
  EXPECT_EQ(three.encode("a fox <extra_id_1> and a wolf", 4).cut, "<extra_id_1> and a wolf");

  // Names of sentinels that the vocabulary lacks are tokenized as ordinary text.
  write(config, R"({"extra_ids": 0})");
  const Tokenizer none = open();
  EXPECT_EQ(none.vocabulary_size(), 1000);
  const Tokenizer usual = Tokenizer::open(data);
  EXPECT_EQ(none.encode("a <extra_id_100> fox", 40).ids,
            usual.encode("a <extra_id_100> fox", 40).ids);
  const Encoded text = none.encode("<extra_id_0>", 40);
  EXPECT_GT(text.kept, 5);
  for (const std::int32_t id : text.ids) EXPECT_LT(id, 1000);
  expect_error(Status::usage, "expected 0 to 999", [&] {
    (void)none.accept({1000, 1}, 5, "line 1");
  });
}

TEST(Tokenizer, RefusesANumberOfSentinelsThatIsNone) {
  const Folder folder;
  std::filesystem::copy(data / "spiece.model", folder.path());
  const std::filesystem::path config = folder.path() / "tokenizer_config.json";
  for (const char* wrong : {R"("100")", "-1", "1.5", "65537", "18446744073709551615", "[100]"}) {
    write(config, std::string(R"({"extra_ids": )") + wrong + "}");
    expect_error(Status::data, config.string() + ": 'extra_ids' is " + wrong,
                 [&] { Tokenizer::open(folder.path()); });
  }
  for (const char* damaged : {"", "[]", "{\"extra_ids\": 1"}) {
    write(config, damaged);
    expect_error(Status::data, config.string(), [&] { Tokenizer::open(folder.path()); });
  }
}

TEST(Tokenizer, TakesAnyBytes) {
  const Tokenizer tokenizer = Tokenizer::open(data);
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string text(static_cast<std::size_t>(i), ' ');
    for (char& c : text) c = static_cast<char>(random());
    const Encoded encoded = tokenizer.encode(text, 40);
    ASSERT_EQ(encoded.ids.size(), 40U);
    for (const std::int32_t id : encoded.ids) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, tokenizer.vocabulary_size());
    }
  }
  EXPECT_THAT(tokenizer.encode("\xff", 4).ids, ElementsAre(_, 2, 1, 0));
  EXPECT_THAT(tokenizer.encode("\xe4\xbd", 4).ids, ElementsAre(_, 2, 1, 0));
  EXPECT_EQ(tokenizer.encode(std::string("a\0b", 3), 9).ids.size(), 9U);
}

TEST(Tokenizer, RefusesWhatIsNoModelOfT5) {
  const Folder folder;
  const std::filesystem::path path = folder.path() / "spiece.model";
  const auto open = [&] { Tokenizer::open(folder.path()); };
  expect_error(Status::no_input,
               folder.path().string() + ": found neither spiece.model nor tokenizer.json", open);
  write(path, "");
  expect_error(Status::data, path.string(), open);
  write(path, std::string(1000, '\xff'));
  expect_error(Status::data, path.string(), open);
  const std::string model = read(data / "spiece.model");
  write(path, model.substr(0, model.size() / 2));
  expect_error(Status::data, path.string(), open);
  std::string other = model;
  other.replace(other.find("</s>"), 4, "</t>");
  write(path, other);
  expect_error(Status::data, "\"</s>\"", open);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  expect_error(Status::data, path.string(), open);
}

TEST(TrainTokenizer, WritesAFolderThatOpens) {
  const Folder one;
  const Folder two;
  const std::filesystem::path text = std::string(REELMESH_SOURCE) + "/inputs/tokenizer_text.txt";
  train_tokenizer(text, one.path(), 1000);
  train_tokenizer(text, two.path(), 1000);
  for (const char* name :
       {"spiece.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    EXPECT_EQ(read(one.path() / name), read(two.path() / name)) << name;
  }
  const Tokenizer tokenizer = Tokenizer::open(one.path());
  EXPECT_EQ(tokenizer.vocabulary_size(), 1100);
  EXPECT_GT(tokenizer.encode("a blue cube turns slowly", 20).kept, 3);

  const auto added = nlohmann::json::parse(read(one.path() / "added_tokens.json"));
  const auto map = nlohmann::json::parse(read(one.path() / "special_tokens_map.json"));
  const auto config = nlohmann::json::parse(read(one.path() / "tokenizer_config.json"));
  EXPECT_EQ(added.size(), 100U);
  EXPECT_EQ(added["<extra_id_0>"], 1099);
  EXPECT_EQ(map["eos_token"]["content"], "</s>");
  EXPECT_EQ(config["added_tokens_decoder"].size(), 103U);
  EXPECT_EQ(config["added_tokens_decoder"]["1000"]["content"], "<extra_id_99>");
  EXPECT_EQ(config["tokenizer_class"], "T5Tokenizer");
  EXPECT_EQ(config["legacy"], true);
}

TEST(TrainTokenizer, SaysWhyNot) {
  const Folder folder;
  const std::filesystem::path text = folder.path() / "text.txt";
  expect_error(Status::no_input, text.string(), [&] { train_tokenizer(text, folder.path(), 100); });
  write(text, "\n\n");
  expect_error(Status::data, text.string(), [&] { train_tokenizer(text, folder.path(), 100); });
  write(text, "many different letters\n");
  expect_error(Status::data, text.string(), [&] { train_tokenizer(text, folder.path(), 5); });
  const std::filesystem::path source = std::string(REELMESH_SOURCE) + "/inputs/tokenizer_text.txt";
  expect_error(Status::cannot_create, "spiece.model",
               [&] { train_tokenizer(source, folder.path() / "none", 300); });
}

TEST(Spaces, AreThoseOfPython) {
  EXPECT_EQ(without_leading_spaces(" \t\u3000\u0085a b "), "a b ");
  EXPECT_EQ(without_trailing_spaces(" a b\u2003\x1c\n"), " a b");
  EXPECT_EQ(without_leading_spaces("\u200bx"), "\u200bx");
  EXPECT_EQ(without_trailing_spaces(" \u00a0 "), "");
}

}  // namespace
}  // namespace reelmesh
