#include "train/data.hpp"

#include <cstdlib>

#include "support/expect_error.hpp"
#include "support/ranks.hpp"
#include "support/temp_folder.hpp"
#include "train/csv.hpp"

namespace reelmesh {
namespace {

using test::expect_error;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// Each rank has a folder of its own.
class Data : public testing::Test {
 protected:
  void write(const std::string& name, std::string_view text) {
    test::write_file(folder / name, text);
  }
  DataSettings settings(const std::string& name = "") const {
    DataSettings data;
    data.paths = {{name.empty() ? folder.path() : folder / name}};
    return data;
  }
  /// "video|prompt|where", relative to the folder.
  std::vector<std::string> read(const std::string& name = "") const {
    std::vector<std::string> found;
    for (const DataSample& sample : read_data(settings(name))) {
      found.push_back(
          fmt::format("{}|{}|{}", relative(sample.video), sample.prompt, relative(sample.where)));
    }
    return found;
  }
  std::string relative(const std::string& text) const {
    const std::string begin = folder.path().string() + "/";
    return text.starts_with(begin) ? text.substr(begin.size()) : text;
  }
  /// Those of samples that cannot be used: "where: problem".
  std::vector<std::string> problems(const DataSettings& data) const {
    std::vector<std::string> found;
    for (const DataSample& sample : read_data(data)) {
      if (sample.problem.empty()) continue;
      EXPECT_TRUE(sample.video.empty() && sample.prompt.empty());
      found.push_back(fmt::format("{}: {}", relative(sample.where), sample.problem));
    }
    return found;
  }
  template <class... Parts>
  void refuses(const std::string& name, const Parts&... parts) const {
    expect_error(
        Status::data, [&] { read_data(settings(name)); }, parts...);
  }

  test::TempFolder folder;
};

TEST_F(Data, ReadsLinesOfJson) {
  write("clips.jsonl",
        "\xef\xbb\xbf{\"video\": \"a.mp4\", \"prompt\": \" a panda, «竹» \", \"seed\": [1]}\r\n\n"
        "{\"text\": \"two\", \"file_name\": \"sub/b.mov\"}\n"
        "{\"caption\": \"three\", \"text\": \"the text\", \"path\": \"/abs/c.png\"}");
  EXPECT_THAT(read("clips.jsonl"),
              ElementsAre("a.mp4|a panda, «竹»|clips.jsonl:1", "sub/b.mov|two|clips.jsonl:3",
                          "/abs/c.png|the text|clips.jsonl:4"));
  // In a folder that gives the name.
  std::filesystem::rename(folder / "clips.jsonl", folder / "metadata.jsonl");
  EXPECT_EQ(read()[1], "sub/b.mov|two|metadata.jsonl:3");
}

TEST_F(Data, ReadsPathsInTheHomeOfTheUser) {
  const char* const home = std::getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  setenv("HOME", "/home/cat", 1);
  write("clips.csv", "video,prompt\r~/a.mp4,one\r~b.mp4,two\r");
  EXPECT_THAT(read("clips.csv"),
              ElementsAre("/home/cat/a.mp4|one|clips.csv:2", "~b.mp4|two|clips.csv:3"));
  setenv("HOME", before.c_str(), 1);
  write("clips.csv", "video,prompt\n~cat/a.mp4,one\n");
  EXPECT_THAT(problems(settings("clips.csv")),
              ElementsAre(StartsWith("clips.csv:2: found '~cat/a.mp4'")));
}

TEST_F(Data, ReadsAListOfJson) {
  write("clips.json", R"([{"file_path": "a.mp4", "caption": "one"},
                          {"path": "b.mp4", "prompt": "two"}])");
  EXPECT_THAT(read("clips.json"),
              ElementsAre("a.mp4|one|clips.json[0]", "b.mp4|two|clips.json[1]"));
  write("object.json", R"({"path": "b.mp4", "prompt": "two"})");
  refuses("object.json", "object.json: found object, expected a list of objects");
}

TEST_F(Data, ReadsCsvWithQuotes) {
  write("clips.csv",
        "\xef\xbb\xbfid, text ,file_name\r\n"
        "1,plain,a.mp4\r\n"
        "2,\"commas, \"\"quotes\"\"\r\nand a line end\",\"b,1.mp4\"\r\n"
        "\r\n"
        "3,last,c.mp4");
  EXPECT_THAT(read("clips.csv"),
              ElementsAre("a.mp4|plain|clips.csv:2",
                          "b,1.mp4|commas, \"quotes\"\nand a line end|clips.csv:3",
                          "c.mp4|last|clips.csv:6"));
  std::filesystem::rename(folder / "clips.csv", folder / "metadata.csv");
  EXPECT_EQ(read().size(), 3U);
}

TEST_F(Data, ReadsTimesAndRepetitions) {
  write("clips.jsonl",
        R"({"video": "a", "prompt": "x", "start": 1.5, "end": "3", "repeat": 2}
{"video": "b", "prompt": "x", "end": null}
{"video": "c", "prompt": "x", "start": 3, "end": 3}
{"video": "d", "prompt": "x", "start": "1:30"}
{"video": "e", "prompt": "x", "repeat": 0})");
  write("clips.csv", "video,prompt,start,end,repeat\na,x,1.5,3,2\nb,x,,,\nc,x,-1,,\n");
  for (const char* name : {"clips.jsonl", "clips.csv"}) {
    const std::vector<DataSample> samples = read_data(settings(name));
    EXPECT_EQ(samples.at(0).start, 1.5);
    EXPECT_EQ(samples.at(0).end, 3);
    EXPECT_EQ(samples.at(0).repeat, 2);
    EXPECT_FALSE(samples.at(1).start || samples.at(1).end);
    EXPECT_EQ(samples.at(1).repeat, 1);
  }
  EXPECT_THAT(
      problems(settings("clips.jsonl")),
      ElementsAre("clips.jsonl:3: found start 3 and end 3, expected an end after the start",
                  StartsWith("clips.jsonl:4: start: found '1:30', expected a number from 0"),
                  StartsWith("clips.jsonl:5: repeat: found '0', expected a whole number from 1")));
  EXPECT_THAT(problems(settings("clips.csv")),
              ElementsAre(StartsWith("clips.csv:4: start: found '-1', expected a number from 0")));
}

TEST_F(Data, ReadsSeveralPathsWithRepetitions) {
  write("one.csv", "video,prompt,repeat\na,x,5\nb,y,\n");
  write("two.jsonl", R"({"video": "c", "prompt": "z"})");
  DataSettings data;
  data.paths = {{folder / "one.csv", 2}, {folder / "two.jsonl", 7}};
  std::vector<std::int64_t> repeats;
  for (const DataSample& sample : read_data(data)) repeats.push_back(sample.repeat);
  EXPECT_THAT(repeats, ElementsAre(10, 2, 7));
  data.paths = {{folder / "one.csv", 0.5}, {folder / "two.jsonl", 0.001}};
  repeats.clear();
  for (const DataSample& sample : read_data(data)) repeats.push_back(sample.repeat);
  EXPECT_THAT(repeats, ElementsAre(3, 1));  // three of five, none of the sixth, one of one
  data.paths = {{folder / "one.csv", 1.5}, {folder / "two.jsonl", 1.001}};
  repeats.clear();
  for (const DataSample& sample : read_data(data)) repeats.push_back(sample.repeat);
  EXPECT_THAT(repeats, ElementsAre(8, 1, 2));
  data.paths[1].repeat = 1'000'000;
  expect_error(
      Status::data, [&] { read_data(data); }, "data.path: found ", "one.csv and ",
      "two.jsonl with repetitions of more than 1000000 videos");
}

TEST_F(Data, ReadsTwoLists) {
  for (const char* name : {"prompts.txt", "prompt.txt", "captions.txt"}) {
    write(name, "one\r\n # two\n");
    write("videos.txt", "a.mp4\nsub/b.mp4");
    EXPECT_THAT(read(), ElementsAre(fmt::format("a.mp4|one|{}:1", name),
                                    fmt::format("sub/b.mp4|# two|{}:2", name)));
    std::filesystem::remove(folder / name);
  }
}

TEST_F(Data, ReadsPairsByName) {
  for (const char* name : {"b.mp4", "a 1.MKV", "c.JPG", ".hidden.mp4", "notes.md"}) write(name, "");
  write("b.txt", "two\n\nlines\n");
  write("a 1.txt", "one");
  write("c.txt", "three");
  std::filesystem::create_directory(folder / "d.mp4");
  EXPECT_THAT(read(),
              ElementsAre("a 1.MKV|one|a 1.txt", "b.mp4|two\n\nlines|b.txt", "c.JPG|three|c.txt"));
  write("e.gif", "");
  EXPECT_THAT(problems(settings()),
              ElementsAre(StartsWith("e.gif: found no e.txt with its prompt, expected one")));
  write("e.txt", "four");
  EXPECT_EQ(read().size(), 4U);
  EXPECT_THAT(problems(settings()), testing::IsEmpty());
}

// As kohya's scripts, taggers and CogVideo's trainer name them.
TEST_F(Data, ReadsCaptionsByTheirUsualNames) {
  for (const char* name : {"a.mp4", "b.mkv", "c.webm", "d.mp4.mkv", "e.png"}) write(name, "");
  for (const char* name : {"a.caption", "b.mkv.txt", "c.webm.caption", "d.mp4.txt", "e.txt"}) {
    write(name, name);
  }
  EXPECT_THAT(read(), ElementsAre("a.mp4|a.caption|a.caption", "b.mkv|b.mkv.txt|b.mkv.txt",
                                  "c.webm|c.webm.caption|c.webm.caption",
                                  "d.mp4.mkv|d.mp4.txt|d.mp4.txt", "e.png|e.txt|e.txt"));
  for (const char* name : {"a.txt", "a.mp4.txt", "notes.caption"}) write(name, name);
  EXPECT_THAT(read(), testing::Contains("a.mp4|a.txt|a.txt"));
  EXPECT_THAT(problems(settings()),
              ElementsAre("a.caption: a.txt is the caption of a.mp4",
                          "a.mp4.txt: a.txt is the caption of a.mp4",
                          StartsWith("notes.caption: found no video notes with one of")));
}

TEST_F(Data, ReadsVideosAndLabels) {
  std::filesystem::create_directory(folder / "videos");
  for (const char* name : {"videos/1.mp4", "videos/2.mp4"}) write(name, "");
  refuses("", "data.path: found no list of videos in ", "videos/a.mp4 and labels/a.txt");
  std::filesystem::create_directory(folder / "labels");
  for (const char* name : {"labels/1.txt", "labels/2.mp4.txt"}) write(name, name);
  EXPECT_THAT(read(), ElementsAre("videos/1.mp4|labels/1.txt|labels/1.txt",
                                  "videos/2.mp4|labels/2.mp4.txt|labels/2.mp4.txt"));
  for (const char* name : {"videos/2.caption", "videos/3.mp4", "labels/9.txt"}) write(name, name);
  EXPECT_THAT(read(), testing::Contains("videos/2.mp4|videos/2.caption|videos/2.caption"));
  EXPECT_THAT(problems(settings()),
              ElementsAre("labels/2.mp4.txt: videos/2.caption is the caption of videos/2.mp4",
                          StartsWith("videos/3.mp4: found no 3.txt with its prompt, expected one"),
                          StartsWith("labels/9.txt: found no video 9 with one of")));
}

// One odd file does not end a training.
TEST_F(Data, HasAProblemForEachFileThatIsNoPair) {
  for (const char* name : {"a.mp4", "a.mov", "a.png", "b.webp", "d.mp4"}) write(name, "");
  for (const char* name : {"a.txt", "b.txt", "README.txt"}) write(name, "words");
  write("d.txt", " \n");
  std::filesystem::create_symlink("loop.mp4", folder / "loop.mp4");
  write("loop.txt", "a link to itself");
  EXPECT_THAT(problems(settings()),
              ElementsAre(StartsWith("README.txt: found no video README with one of .mp4, "),
                          "a.mp4: a.mov has the same name", "a.png: a.mov has the same name",
                          StartsWith("d.txt: found no prompt")));
  EXPECT_THAT(read(), testing::IsSupersetOf({"a.mov|words|a.txt", "b.webp|words|b.txt",
                                             "loop.mp4|a link to itself|loop.txt"}));
}

TEST_F(Data, HasEmptyCaptionsAPrefixAndOtherNamesWhereAskedFor) {
  DataSettings data = settings();
  data.no_caption = NoCaption::empty;
  for (const char* name : {"a.mp4", "b.mp4", "c.mp4"}) write(name, "");
  write("a.txt", "one");
  write("b.txt", "");
  const auto prompts = [&] {
    std::vector<std::string> found;
    for (const DataSample& sample : read_data(data)) found.push_back(sample.prompt);
    return found;
  };
  EXPECT_THAT(prompts(), ElementsAre("one", "", ""));
  data.caption_prefix = "in the style of xyz";
  EXPECT_THAT(prompts(),
              ElementsAre("in the style of xyz one", "in the style of xyz", "in the style of xyz"));
  std::filesystem::create_directories(folder / "sub/.hidden");
  write("sub/d.mp4", "");
  write("sub/d.txt", "four");
  write("sub/.hidden/e.mp4", "");
  EXPECT_EQ(prompts().size(), 3U);
  data.subfolders = true;
  EXPECT_THAT(prompts(), ElementsAre("in the style of xyz one", "in the style of xyz",
                                     "in the style of xyz", "in the style of xyz four"));
  data = settings("clips.csv");
  data.video_field = "Clip";
  data.caption_field = "Words";
  write("clips.csv", "video,Words,Clip,prompt\nx,one,a.mp4,y\n");
  EXPECT_THAT(prompts(), ElementsAre("one"));
  data.caption_field = "words";
  expect_error(
      Status::data, [&] { read_data(data); }, "clips.csv:1: found no column for the prompt among",
      "expected one of words");
  data = settings("clips.jsonl");
  data.no_caption = NoCaption::empty;
  write("clips.jsonl", "{\"media_path\": \"a\"}\n{\"video_path\": \"b\", \"cap\": null}");
  EXPECT_THAT(prompts(), ElementsAre("", ""));
}

TEST_F(Data, RefusesFoldersWithoutOneList) {
  refuses("", "data.path: found no list of videos in " + folder.path().string(), "metadata.csv",
          "metadata.jsonl", "prompts.txt or prompt.txt or captions.txt with videos.txt", "a.mp4");
  write("videos.txt", "a.mp4");
  refuses("", "found videos.txt alone in ");
  write("captions.txt", "one");
  EXPECT_EQ(read().size(), 1U);
  write("metadata.csv", "video,prompt\na.mp4,one\n");
  refuses("", "found metadata.csv and captions.txt in ");
  std::filesystem::remove(folder / "videos.txt");
  std::filesystem::remove(folder / "metadata.csv");
  refuses("", "found captions.txt alone in ");
}

TEST_F(Data, NamesTheLineThatIsWrong) {
  struct Case {
    const char *name, *text, *message;
  };
  // Of the last sample; those before it can be used.
  const std::vector<Case> cases = {
      {"x.jsonl", "{\"video\": \"a.mp4\"}", "x.jsonl:1: found no prompt, expected one of prompt, "},
      {"x.jsonl", "{\"prompt\": \"one\"}", "x.jsonl:1: found no video, expected one of video, "},
      {"x.jsonl", "\n{\"video\": 3, \"prompt\": \"one\"}", "x.jsonl:2: video: found number"},
      {"x.jsonl", "{\"video\": \" \", \"prompt\": \"one\"}", "x.jsonl:1: found no video, "},
      {"x.jsonl", "{\"video\": \"a\", \"prompt\": \"\"}", "x.jsonl:1: found no prompt, "},
      {"x.jsonl", "{\"video\": \"a\", \"prompt\": \"a\\u0000b\"}",
       "x.jsonl:1: found byte 1 (0x00)"},
      {"x.jsonl", "{\"video\": \"a\", \"prompt\": \"b\"}\n[1]", "x.jsonl:2: found array, "},
      {"x.jsonl", "{\"video\": \"a\", \"video\": \"b\", \"prompt\": \"b\"}", "x.jsonl:1: "},
      {"x.jsonl", "{\"video\": \"a\", ", "x.jsonl:1: "},
      {"x.json", "[{\"video\": \"a\", \"prompt\": \"b\"}, {}]", "x.json[1]: found no video"},
      {"x.csv", "video,prompt\na,b\na,b,c\n", "x.csv:3: found 3 fields, expected 2"},
      {"x.csv", "video,prompt\na,\n", "x.csv:2: found no prompt"},
      {"x.csv", "video,prompt\na,\xff\n", "x.csv:2: found byte 0 (0xff), expected UTF-8"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    write(c.name, c.text);
    EXPECT_THAT(problems(settings(c.name)), ElementsAre(StartsWith(c.message)));
  }
  write("long.csv", "video,prompt\na," + std::string(70'000, 'x'));
  EXPECT_THAT(problems(settings("long.csv")), ElementsAre(HasSubstr("65536")));
}

TEST_F(Data, RefusesListsThatCannotBeDivided) {
  struct Case {
    const char *name, *text, *message;
  };
  const std::vector<Case> cases = {
      {"x.jsonl", "\n", "data.path: found 0 videos in "},
      {"x.json", "[]", "data.path: found 0 videos in "},
      {"x.csv", "", "data.path: found 0 videos in "},
      {"x.csv", "video,prompt\n", "data.path: found 0 videos in "},
      {"x.csv", "video,words\na,b\n",
       "x.csv:1: found no column for the prompt among 'video,words'"},
      {"x.csv", "a.mp4,one\n", "x.csv:1: found no column for the video"},
      {"x.csv", "video,prompt\n\"a\nb\",c\nd,\"e\nf", "x.csv:4: found a quote without an end"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    write(c.name, c.text);
    refuses(c.name, c.message);
  }
  write("x.txt", "a.mp4");
  expect_error(
      Status::usage, [&] { read_data(settings("x.txt")); }, "data.path: found '");
  expect_error(
      Status::no_input, [&] { read_data(settings("none.csv")); }, "none.csv' not found");
  DataSettings both = settings("good.csv");
  both.validation = {{folder / "none.csv"}};
  expect_error(
      Status::no_input, [&] { read_data(both, validation_clips); }, "data.validation: '",
      "none.csv' not found");
}

TEST_F(Data, NamesTheLineWithoutAnother) {
  write("prompts.txt", "one\ntwo\n\nfour\n");
  write("videos.txt", "a\nb\n");
  refuses("", "prompts.txt:3: found a line without another in ", "4 prompts and 2 videos");
  write("videos.txt", "a\nb\nc\nd\ne");
  refuses("", "videos.txt:5: found a line without another in ", "4 prompts and 5 videos");
  write("videos.txt", "a\nb\nc\nd");
  EXPECT_THAT(problems(settings()), ElementsAre(StartsWith("prompts.txt:3: found no prompt")));
  write("prompts.txt", "one\ntwo\nthree\nfour\n");
  write("videos.txt", "a\n\nc\nd");
  EXPECT_THAT(problems(settings()), ElementsAre(StartsWith("videos.txt:2: found no video")));
}

TEST_F(Data, IsReadByTheFirstRank) {
  const comm::Group& world = test::world();
  if (world.rank() == 0) {
    write("clips.csv",
          "video,prompt,start,end,repeat\na.mp4,one,0.1,,\nb.mp4,\"two\nlines\",,2.5,3\n");
  }
  const std::string folder_of_first = world.broadcast(folder.path().string(), 0);
  const std::vector<DataSample> samples = read_data_together(world, settings("clips.csv"));
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[1].video, folder_of_first + "/b.mp4");
  EXPECT_EQ(samples[1].prompt, "two\nlines");
  EXPECT_EQ(samples[1].where, folder_of_first + "/clips.csv:3");
  EXPECT_EQ(samples[0].start, 0.1);
  EXPECT_FALSE(samples[0].end || samples[1].start);
  EXPECT_EQ(samples[1].end, 2.5);
  EXPECT_EQ(samples[1].repeat, 3);
  expect_error(
      Status::no_input, [&] { read_data_together(world, settings("none.csv")); }, "none.csv");
}

// Python 3.11's csv.reader gives these fields.
TEST(Csv, TakesQuotesAsPythonDoes) {
  const std::vector<CsvRecord> records =
      parse_csv("ok.mp4,He said \"hello\" to me\na,\"b\" c\na,b\"\n\"a\"\"b\"c\"d\",e", "x");
  ASSERT_EQ(records.size(), 4U);
  EXPECT_THAT(records[0].fields, ElementsAre("ok.mp4", "He said \"hello\" to me"));
  EXPECT_THAT(records[1].fields, ElementsAre("a", "b c"));
  EXPECT_THAT(records[2].fields, ElementsAre("a", "b\""));
  EXPECT_THAT(records[3].fields, ElementsAre("a\"bc\"d\"", "e"));
}

TEST(Csv, GivesRecordsWithTheirLines) {
  const auto fields = [](std::string_view text) {
    std::vector<std::vector<std::string>> all;
    for (const CsvRecord& record : parse_csv(text, "x")) all.push_back(record.fields);
    return all;
  };
  EXPECT_TRUE(fields("").empty());
  EXPECT_TRUE(fields("\n\n").empty());
  EXPECT_THAT(fields("a,,\"\"\n,"), ElementsAre(ElementsAre("a", "", ""), ElementsAre("", "")));
  EXPECT_THAT(fields("\"\""), ElementsAre(ElementsAre("")));
  EXPECT_THAT(fields("\"a\"\"\",b"), ElementsAre(ElementsAre("a\"", "b")));
  const std::vector<CsvRecord> records = parse_csv("\na\n\"b\n\n\",c\n\nd", "x");
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].line, 2);
  EXPECT_EQ(records[1].line, 3);
  EXPECT_EQ(records[2].line, 7);
}

}  // namespace
}  // namespace reelmesh
