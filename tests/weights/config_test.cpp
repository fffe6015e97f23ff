#include "weights/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh {
namespace {

using test::expect_error;
using test::TempFolder;
using test::write_file;
using testing::ElementsAre;

Config parse(std::string_view text) { return Config::parse(text, "config.json"); }

TEST(Config, GivesValuesAndDefaults) {
  const Config config = parse(R"({"layers":30,"scale":1.875,"whole":2,"rotary":true,"act":"silu",
      "channels":[128,256],"blocks":["a","b"],"none":null,"below":-3})");
  EXPECT_EQ(config.get_int("layers", 1), 30);
  EXPECT_EQ(config.get_int("below", 1), -3);
  EXPECT_EQ(config.get_int("missing", 7), 7);
  EXPECT_EQ(config.get_int("none", 7, 8, 9), 7) << "bounds do not apply to defaults";
  EXPECT_EQ(config.find_int("none"), std::nullopt);
  EXPECT_EQ(config.find_int("missing"), std::nullopt);
  EXPECT_EQ(config.find_int("layers"), 30);
  EXPECT_EQ(config.get_double("scale", 0), 1.875);
  EXPECT_EQ(config.get_double("whole", 0), 2.0);
  EXPECT_EQ(config.get_double("none", 0.5), 0.5);
  EXPECT_EQ(config.find_double("missing"), std::nullopt);
  EXPECT_TRUE(config.get_bool("rotary", false));
  EXPECT_TRUE(config.get_bool("missing", true));
  EXPECT_EQ(config.get_string("act", ""), "silu");
  EXPECT_EQ(config.get_string("missing", "gelu"), "gelu");
  EXPECT_EQ(config.find_string("none"), std::nullopt);
  EXPECT_THAT(config.get_ints("channels", {}), ElementsAre(128, 256));
  EXPECT_THAT(config.get_ints("none", {1}), ElementsAre(1));
  EXPECT_THAT(config.get_strings("blocks", {}), ElementsAre("a", "b"));
  EXPECT_TRUE(config.has("layers"));
  EXPECT_FALSE(config.has("none"));
}

TEST(Config, GivesObjectsWithinObjects) {
  const Config config = parse(R"({"inner":{"n":3,"flags":[true,false],"bad":[true,1]},"n":4})");
  const Config inner = config.get_object("inner");
  EXPECT_EQ(inner.get_int("n", 1), 3);
  EXPECT_THAT(inner.get_bools("flags", {}), ElementsAre(true, false));
  EXPECT_THAT(inner.get_bools("missing", {true}), ElementsAre(true));
  EXPECT_EQ(config.get_object("missing").get_int("n", 1), 1);
  expect_error(
      Status::data, [&] { inner.get_bools("bad", {}); }, "config.json: inner", "'bad'", "[true,1]");
  expect_error(
      Status::data, [&] { config.get_object("n"); }, "config.json", "'n'", "an object");
  expect_error(
      Status::data, [&] { only_supported(inner, "n", inner.get_int("n", 1), std::int64_t{5}); },
      "config.json: inner", "n is 3", "expected 5");
}

TEST(Config, NamesFileKeyFoundAndExpected) {
  const Config config = parse(R"({"n":2.0,"s":"x","big":18446744073709551615,"b":1,"a":[1,"x"],
      "m":[1,-2],"o":{"k":1}})");
  const auto refused = [](auto f, auto... parts) {
    expect_error(Status::data, f, "config.json", parts...);
  };
  refused([&] { config.get_int("n", 1); }, "'n'", "2.0", "an integer");
  refused([&] { config.get_int("s", 1); }, "'s'", "\"x\"", "an integer");
  refused([&] { config.get_int("big", 1); }, "'big'", "18446744073709551615");
  refused([&] { config.get_int("b", 1, 2, 9); }, "'b'", "1", "from 2 to 9");
  refused([&] { config.get_int("b", 1, 2); }, "'b'", "at least 2");
  refused([&] { config.get_int("b", 1, Config::min_value, 0); }, "'b'", "at most 0");
  refused([&] { config.find_int("o"); }, "'o'");
  refused([&] { config.get_double("s", 1); }, "'s'", "a number");
  refused([&] { config.get_bool("b", true); }, "'b'", "true or false");
  refused([&] { config.get_string("b", ""); }, "'b'", "a string");
  refused([&] { config.get_ints("b", {}); }, "'b'", "array of integers");
  refused([&] { config.get_ints("a", {}); }, "'a'", "array of integers");
  refused([&] { config.get_ints("m", {}, 1); }, "'m'", "at least 1");
  refused([&] { config.get_strings("a", {}); }, "'a'", "array of strings");
}

TEST(Config, RefusesWhatIsNotAnObject) {
  const auto refused = [](std::string_view text) {
    SCOPED_TRACE(text.substr(0, 20));
    expect_error(
        Status::data, [&] { parse(text); }, "config.json");
  };
  for (const char* text : {"", "[]", "3", "null", "{", "{\"a\":1,}", "{\"a\":1} x", "{\"a\":NaN}",
                           "{\"a\":1e400}", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\"}"}) {
    refused(text);
  }
  refused("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}");
  refused("{\"a\":" + std::string(3'000'000, '['));
}

TEST(Config, ReadsAFile) {
  const TempFolder folder;
  expect_error(
      Status::no_input, [&] { Config::read(folder / "config.json"); }, "config.json");
  write_file(folder / "config.json", R"({"a":1})");
  const Config config = Config::read(folder / "config.json");
  EXPECT_EQ(config.get_int("a", 0), 1);
  EXPECT_EQ(config.file(), folder / "config.json");
  std::filesystem::resize_file(folder / "config.json", std::uintmax_t{1} << 30);
  expect_error(
      Status::data, [&] { Config::read(folder / "config.json"); }, "1073741824");
}

TEST(ModelIndex, NamesThePipelineAndItsParts) {
  const TempFolder folder;
  const auto path = folder / "model_index.json";
  write_file(path, R"({"_class_name":"CogVideoXPipeline","_diffusers_version":"0.30.0",
      "transformer":["diffusers","CogVideoXTransformer3DModel"],"safety_checker":[null,null],
      "vae":["diffusers","AutoencoderKLCogVideoX"],"force_zeros":true})");
  const ModelIndex index = read_model_index(path);
  EXPECT_EQ(index.class_name, "CogVideoXPipeline");
  ASSERT_EQ(index.parts.size(), 2U);
  EXPECT_EQ(index.parts.at("vae").library, "diffusers");
  EXPECT_EQ(index.parts.at("transformer").class_name, "CogVideoXTransformer3DModel");

  write_file(path, R"({"vae":["diffusers","AutoencoderKLCogVideoX"]})");
  expect_error(
      Status::data, [&] { read_model_index(path); }, "model_index.json", "_class_name");
  write_file(path, R"({"_class_name":"X","vae":["diffusers",3]})");
  expect_error(
      Status::data, [&] { read_model_index(path); }, "'vae'");
  write_file(path, R"({"_class_name":"X","vae":["diffusers"]})");
  expect_error(
      Status::data, [&] { read_model_index(path); }, "'vae'");
  expect_error(Status::no_input, [&] { read_model_index(folder / "none.json"); });
}

TEST(Config, NamesItsClass) {
  EXPECT_EQ(class_named_in(parse(R"({"_class_name":"A","architectures":["B"]})")), "A");
  EXPECT_EQ(class_named_in(parse(R"({"architectures":["B","C"],"model_type":"d"})")), "B");
  EXPECT_EQ(class_named_in(parse(R"({"architectures":[],"model_type":"d"})")), "d");
  EXPECT_EQ(class_named_in(parse("{}")), "");
  EXPECT_EQ(require_class(parse(R"({"_class_name":"A"})"), {"B", "A"}), "A");
  EXPECT_EQ(require_class(parse("{}"), {"A"}), "");
  expect_error(
      Status::data,
      [] {
        require_class(parse(R"({"_class_name":"A\n"})"), {"B", "C"});
      },
      "config.json: the class is A?, expected B or C");
}

}  // namespace
}  // namespace reelmesh
