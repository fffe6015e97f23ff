#include "prompts.hpp"

#include <gmock/gmock.h>

#include "job/values.hpp"
#include "scratch.hpp"

namespace reelmesh::app {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class Prompts : public Scratch {
 protected:
  static std::vector<ClipRequest> read(const std::string& name, std::string_view text) {
    write(name, text);
    return read_prompts(name, {.negative = "default negative"}, "prompt.file");
  }
  static std::string json_error(std::string_view text) {
    return error_of([&] { read("p.jsonl", text); });
  }
};

TEST_F(Prompts, OneALineWithComments) {
  const auto clips = read("p.txt", "# two clips\n\n  A cat, #1 of its kind \r\n\t# no\nA dog");
  ASSERT_EQ(clips.size(), 2U);
  EXPECT_EQ(clips[0].prompt, "A cat, #1 of its kind");
  EXPECT_EQ(clips[0].negative_prompt, "default negative");
  EXPECT_EQ(clips[1].prompt, "A dog");
  EXPECT_FALSE(clips[1].settings.seed || clips[1].settings.height || clips[1].settings.steps);
}

TEST_F(Prompts, MayHaveCarriageReturnsAsLineEnds) {
  const auto clips = read("p.txt", "a red circle\r# no\ra blue square\r");
  ASSERT_EQ(clips.size(), 2U);
  EXPECT_EQ(clips[0].prompt, "a red circle");
  EXPECT_EQ(clips[1].prompt, "a blue square");
}

TEST_F(Prompts, ObjectsWithSettingsOfTheirOwn) {
  const auto clips =
      read("p.jsonl",
           R"({"prompt": "A \"cat\" é", "negative_prompt": "", "seed": 18446744073709551615, )"
           R"("height": 64, "width": 96, "frames": 9, "fps": 7.5, "steps": 10, "guidance": 6})"
           "\n\n"
           R"({"prompt": "# a dog"})");
  ASSERT_EQ(clips.size(), 2U);
  EXPECT_EQ(clips[0].prompt, "A \"cat\" é");
  EXPECT_EQ(clips[0].negative_prompt, "");
  EXPECT_EQ(clips[0].settings.seed, 18446744073709551615U);
  EXPECT_EQ(clips[0].settings.height, 64);
  EXPECT_EQ(clips[0].settings.width, 96);
  EXPECT_EQ(clips[0].settings.frames, 9);
  EXPECT_EQ(clips[0].settings.fps, 7.5);
  EXPECT_EQ(clips[0].settings.steps, 10);
  EXPECT_EQ(clips[0].settings.guidance, 6);
  EXPECT_EQ(clips[1].prompt, "# a dog");
  EXPECT_EQ(clips[1].negative_prompt, "default negative");
}

TEST_F(Prompts, MayBeginFromFiles) {
  const auto clips =
      read("p.jsonl", R"({"prompt": "a", "image": "cat.png", "input_hash": "0123"})"
                      "\n"
                      R"({"prompt": "b", "video": "out/job.h5:3", "strength": 0.5})");
  ASSERT_EQ(clips.size(), 2U);
  EXPECT_EQ(clips[0].image, "cat.png");
  EXPECT_EQ(clips[0].input_hash, "0123");
  EXPECT_EQ(clips[0].video, "");
  EXPECT_EQ(clips[1].image, "");
  EXPECT_EQ(clips[1].video, "out/job.h5:3");
  EXPECT_EQ(clips[1].settings.strength, 0.5);
  EXPECT_EQ(json_error(R"({"prompt": "a", "image": ""})"),
            "64: p.jsonl:1: image: found an empty value, expected a path");
  EXPECT_EQ(json_error(R"({"prompt": "a", "video": 3})"),
            "64: p.jsonl:1: video: found 3, expected a text");
  EXPECT_EQ(json_error(R"({"prompt": "a", "strength": 0})"),
            "64: p.jsonl:1: strength: found '0', expected a number above 0, at most 1");
  EXPECT_EQ(json_error(R"({"prompt": "a", "strength": 1.5})"),
            "64: p.jsonl:1: strength: found '1.5', expected a number above 0, at most 1");
}

TEST_F(Prompts, RefusesObjectsThatSaySomethingElse) {
  EXPECT_EQ(json_error("{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"guidence\": 6}"),
            "64: p.jsonl:2: unknown field \"guidence\"; did you mean \"guidance\"?");
  EXPECT_EQ(json_error(R"({"prompt": "a", "num_inference_steps": 5})"),
            "64: p.jsonl:1: unknown field \"num_inference_steps\"; did you mean \"steps\"?");
  EXPECT_EQ(json_error(R"({"prompt": "a", "photograph": 5})"),
            "64: p.jsonl:1: unknown field \"photograph\"");
  EXPECT_EQ(json_error(R"({"seed": 1})"),
            "64: p.jsonl:1: found neither \"prompt\" nor \"token_ids\", expected one of them");
  EXPECT_EQ(json_error(R"({"prompt": "a", "prompt": "b"})"),
            "65: p.jsonl:1: key 'prompt' appears twice");
  EXPECT_EQ(json_error(R"({"prompt": 5})"), "64: p.jsonl:1: prompt: found 5, expected a text");
  EXPECT_EQ(json_error(R"({"prompt": null})"),
            "64: p.jsonl:1: prompt: found null, expected a text");
  EXPECT_EQ(json_error(R"({"prompt": "a", "steps": "5"})"),
            "64: p.jsonl:1: steps: found \"5\", expected a number");
  EXPECT_EQ(json_error(R"({"prompt": "a", "steps": true})"),
            "64: p.jsonl:1: steps: found true, expected a number");
  EXPECT_EQ(json_error(R"({"prompt": "a", "steps": 5.5})"),
            "64: p.jsonl:1: steps: found '5.5', expected a whole number from 1 to 1000");
  EXPECT_EQ(
      json_error(R"({"prompt": "a", "seed": -1})"),
      "64: p.jsonl:1: seed: found '-1', expected a whole number from 0 to 18446744073709551615");
  EXPECT_THAT(json_error(R"({"prompt": "a", "seed": 18446744073709551616})"),
              StartsWith("64: p.jsonl:1: seed: "));
  EXPECT_EQ(json_error(R"({"prompt": "a", "height": 4})"),
            "64: p.jsonl:1: height: found '4', expected a whole number from 8 to 16384");
  EXPECT_EQ(json_error(R"({"prompt": "a", "fps": 1e9})"),
            "64: p.jsonl:1: fps: found '1000000000.0', expected a number from 0.01 to 1000");
  EXPECT_EQ(json_error(R"({"prompt": ["a"]})"),
            "64: p.jsonl:1: prompt: found a list, expected a text");
  EXPECT_THAT(json_error(R"({"prompt": {"a": 1}})"),
              StartsWith("64: p.jsonl:1: prompt: found an object, expected a text"));
  EXPECT_THAT(json_error(std::string(3000000, '[')),
              StartsWith("65: p.jsonl:1: found JSON nested deeper than 2 levels"));
  EXPECT_THAT(json_error("{\"prompt\": \"" + std::string(65537, 'x') + "\"}"),
              StartsWith("64: p.jsonl:1: prompt: found a prompt of 65537 bytes"));
  EXPECT_THAT(json_error("[]"), HasSubstr("64: p.jsonl:1: found array, expected a JSON object"));
  EXPECT_THAT(json_error("7"), HasSubstr("64: p.jsonl:1: found number, expected a JSON object"));
}

TEST_F(Prompts, TokenIdsInsteadOfAPrompt) {
  const auto clips = read("p.jsonl",
                          "{\"token_ids\": [71, 2147483647, 1]}\n"
                          "{\"prompt\": \"a name\", \"token_ids\": [1]}\n"
                          "{\"prompt\": \"as it is\", \"clean\": false}");
  ASSERT_EQ(clips.size(), 3U);
  EXPECT_THAT(clips[0].token_ids, testing::ElementsAre(71, 2147483647, 1));
  EXPECT_EQ(clips[0].prompt, "");
  EXPECT_EQ(clips[0].negative_prompt, "default negative");
  EXPECT_EQ(clips[1].where, "p.jsonl:2");
  EXPECT_EQ(clips[1].prompt, "a name");
  EXPECT_TRUE(clips[2].token_ids.empty());
  EXPECT_EQ(clips[2].clean, false);
  EXPECT_FALSE(clips[1].clean.has_value());
}

TEST_F(Prompts, RefusesListsThatAreNoTokenIds) {
  EXPECT_EQ(json_error(R"({"token_ids": []})"),
            "64: p.jsonl:1: token_ids: found an empty list, expected token ids");
  EXPECT_EQ(json_error(R"({"token_ids": "5 1"})"),
            "64: p.jsonl:1: token_ids: found \"5 1\", expected a list of numbers");
  EXPECT_EQ(json_error(R"({"token_ids": [5, "1"]})"),
            "64: p.jsonl:1: token_ids[1]: found \"1\", expected a number");
  EXPECT_EQ(
      json_error("{\"prompt\": \"a\"}\n{\"token_ids\": [5, 7.5, 1]}"),
      "64: p.jsonl:2: token_ids[1]: found '7.5', expected a whole number from 0 to 2147483647");
  for (const char* id : {"-1", "2147483648", "18446744073709551616", "1e3", "null"}) {
    EXPECT_THAT(json_error(fmt::format("{{\"token_ids\": [{}]}}", id)),
                StartsWith("64: p.jsonl:1: token_ids[0]: "));
  }
  EXPECT_THAT(json_error(R"({"token_ids": [[1]]})"),
              StartsWith("65: p.jsonl:1: found JSON nested deeper than 2 levels"));
  EXPECT_THAT(json_error(R"({"token_ids": [1], "clean": true})"),
              StartsWith("64: p.jsonl:1: found both \"clean\" and"));
  EXPECT_EQ(json_error(R"({"prompt": "a", "clean": "no"})"),
            "64: p.jsonl:1: clean: found \"no\", expected true or false");
}

TEST_F(Prompts, LinesMayBeRepeated) {
  write("p.jsonl",
        "{\"prompt\": \"a\", \"repeat\": 2, \"seed\": 5}\n{\"prompt\": \"b\"}\n"
        "{\"prompt\": \"c\", \"repeat\": 1}");
  const auto clips = read_prompts("p.jsonl", {.repeat = 3}, "prompt.file");
  ASSERT_EQ(clips.size(), 6U);
  EXPECT_EQ(clips[0].settings.seed, 5U);
  EXPECT_EQ(clips[1].settings.seed, 6U);
  EXPECT_EQ(clips[1].where, "p.jsonl:1");
  EXPECT_EQ(clips[2].prompt, "b");
  EXPECT_EQ(clips[4].prompt, "b");
  EXPECT_FALSE(clips[4].settings.seed);
  EXPECT_EQ(clips[5].prompt, "c");
  EXPECT_EQ(request_line(clips[1]).find("repeat"), std::string::npos) << "a clip like others";
  EXPECT_EQ(json_error(R"({"prompt": "a", "repeat": 0})"),
            "64: p.jsonl:1: repeat: found '0', expected a whole number from 1 to 1000000");
  EXPECT_EQ(json_error(R"({"prompt": "a", "repeat": "5"})"),
            "64: p.jsonl:1: repeat: found \"5\", expected a number");
  EXPECT_EQ(json_error(R"({"prompt": "a", "num_videos_per_prompt": 5})"),
            "64: p.jsonl:1: unknown field \"num_videos_per_prompt\"; did you mean \"repeat\"?");
  EXPECT_EQ(json_error(R"({"prompt": "a", "repeat": 2, "seed": 18446744073709551615})"),
            "64: p.jsonl:1: repeat: found 2, with which the seed 18446744073709551615 + 1 exceeds "
            "64 bits");
  EXPECT_EQ(json_error("{\"prompt\": \"a\"}\n{\"prompt\": \"a\", \"repeat\": 1000000}"),
            "64: p.jsonl:2: repeat: found 1000000, which with the 1 clips before it are more than "
            "1000000");
}

TEST_F(Prompts, AListInJson) {
  write("p.json", "\xef\xbb\xbf[\"a cat\",\r\n {\"prompt\": \"a dog\", \"seed\": 3}, \"\"]\n");
  const auto clips =
      read_prompts("p.json", {.negative = "default negative", .repeat = 2}, "prompt.file");
  ASSERT_EQ(clips.size(), 6U);
  EXPECT_EQ(clips[1].prompt, "a cat");
  EXPECT_EQ(clips[1].negative_prompt, "default negative");
  EXPECT_EQ(clips[3].prompt, "a dog");
  EXPECT_EQ(clips[3].settings.seed, 4U);
  EXPECT_EQ(clips[3].where, "p.json[1]");
  EXPECT_EQ(clips[5].prompt, "");
  const auto error = [&](std::string_view text) { return error_of([&] { read("p.json", text); }); };
  EXPECT_EQ(error("[]"), "64: prompt.file: found no prompt in 'p.json', expected at least one");
  EXPECT_EQ(error(R"({"prompt": "a"})"),
            "64: p.json: found an object, expected a list of prompts [...]");
  EXPECT_EQ(error("7"), "64: p.json: found number, expected a list of prompts [...]");
  EXPECT_EQ(error(R"(["a", 7])"), "64: p.json[1]: found 7, expected a prompt or an object {...}");
  EXPECT_EQ(error(R"([["a"]])"),
            "64: p.json[0]: found a list, expected a prompt or an object {...}");
  EXPECT_EQ(error(R"(["a", {"prompt": "b", "guidence": 6}])"),
            "64: p.json[1]: unknown field \"guidence\"; did you mean \"guidance\"?");
  EXPECT_EQ(error("[\"a\\u0000b\"]"), "65: p.json[0]: found byte 1 (0x00), expected UTF-8 text");
  EXPECT_THAT(error(R"(["a",])"), StartsWith("65: p.json: not valid JSON: "));
  EXPECT_THAT(error(std::string(100000, '[')),
              StartsWith("65: p.json: found JSON nested deeper than 8 levels"));
  EXPECT_EQ(error_of([] { read_prompts("none.json", {}, "prompt.file"); }),
            "66: prompt.file: file 'none.json' not found");
}

TEST_F(Prompts, ListsOfVBench) {
  constexpr std::string_view list = R"([
    {"prompt_en": "a person and a toothbrush", "dimension": ["multiple_objects"],
     "auxiliary_info": {"multiple_objects": {"object": "person and toothbrush"}}},
    {"prompt_en": "In a still frame, a stop sign", "dimension": ["temporal_flickering"],
     "repeat": 25}])";
  const auto clips = read("p.json", list);
  ASSERT_EQ(clips.size(), 26U);
  EXPECT_EQ(clips[0].prompt, "a person and a toothbrush");
  EXPECT_EQ(clips[0].negative_prompt, "default negative");
  EXPECT_EQ(clips[25].prompt, "In a still frame, a stop sign");
  EXPECT_EQ(error_of([&] { read("p.json", R"([{"prompt_en": "a", "dimensions": []}])"); }),
            "64: p.json[0]: unknown field \"dimensions\"");
  EXPECT_EQ(error_of([&] { read("p.json", R"([{"prompt_en": ["a"]}])"); }),
            "64: p.json[0]: prompt: found a list, expected a text");
  EXPECT_EQ(error_of([&] { read("p.json", R"([{"prompt_en": "a", "prompt": "b"}])"); }),
            "64: p.json[0]: unknown field \"prompt_en\"; did you mean \"prompt\"?");
  EXPECT_EQ(json_error(R"({"prompt_en": "a"})"),
            "64: p.jsonl:1: found neither \"prompt\" nor \"token_ids\", expected one of them");
}

TEST_F(Prompts, ListsOfVBenchWithImages) {
  write("p.json", R"([{"prompt_en": "a fox", "dimension": ["i2v_subject"], "image_type": "animal",
                       "image_name": "a fox.jpg"}])");
  std::filesystem::create_directory("crop");
  const auto read_with = [](const std::filesystem::path& images) {
    return read_prompts("p.json", {.images = images}, "prompt.file");
  };
  EXPECT_EQ(read_with("crop").at(0).image, "crop/a fox.jpg");
  EXPECT_EQ(error_of([&] { read_with(""); }),
            "64: p.json[0]: image_name: found \"a fox.jpg\", expected the name of an image in the "
            "folder prompt.image, which is missing");
  EXPECT_EQ(error_of([&] { read_with("p.json"); }),
            "64: p.json[0]: image_name: found \"a fox.jpg\", expected the name of an image in the "
            "folder prompt.image, but 'p.json' is no folder");
}

TEST_F(Prompts, RefusesWhatIsNoJson) {
  EXPECT_THAT(json_error("{\"prompt\": \"a\"}\n{\"prompt\": "),
              StartsWith("65: p.jsonl:2: not valid JSON: parse error"));
  EXPECT_THAT(json_error("A cat"), StartsWith("65: p.jsonl:1: not valid JSON: "));
  EXPECT_THAT(json_error(R"({"prompt": "a"} x)"), StartsWith("65: p.jsonl:1: not valid JSON: "));
  EXPECT_THAT(json_error(R"({"prompt": "a", "fps": 1e999})"),
              StartsWith("65: p.jsonl:1: not valid JSON: "));
  EXPECT_THAT(json_error("{\"prompt\": \"\xff\"}"), HasSubstr("(0xff), expected UTF-8 text"));
  EXPECT_EQ(json_error("{\"prompt\": \"a\\u0000b\"}"),
            "65: p.jsonl:1: prompt: found byte 1 (0x00), expected UTF-8 text");
}

TEST_F(Prompts, RefusesFilesWithoutPrompts) {
  EXPECT_EQ(error_of([] { read("p.txt", "# nothing\n\n"); }),
            "64: prompt.file: found no prompt in 'p.txt', expected at least one");
  EXPECT_EQ(error_of([] { read("p.jsonl", ""); }),
            "64: prompt.file: found no prompt in 'p.jsonl', expected at least one");
  EXPECT_EQ(error_of([] { read_prompts("none.txt", {}, "prompt.file"); }),
            "66: prompt.file: file 'none.txt' not found");
  EXPECT_EQ(error_of([] { read("p.csv", "a"); }),
            "64: prompt.file: found 'p.csv', expected a .txt, .jsonl or .json file");
}

TEST(Utf8, KnowsTheFormsThatAreNotAllowed) {
  for (const char* good : {"", "a", "é", "熊", "🐻", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_EQ(error_of([&] { require_text(good, "x"); }), "") << good;
  }
  // A lone continuation byte, overlong forms, a surrogate, above U+10FFFF, truncated.
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe7\x86", "\xc3"}) {
    EXPECT_THAT(error_of([&] { require_text(bad, "x"); }), StartsWith("65: x: found byte 0 "));
  }
}

}  // namespace
}  // namespace reelmesh::app
