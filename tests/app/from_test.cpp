// run --from: options and clips of an earlier job.
#include <gmock/gmock.h>

#include "options.hpp"
#include "plan_options.hpp"
#include "scratch.hpp"
#include "store/job.hpp"

namespace reelmesh::app {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class From : public Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    std::filesystem::create_directories("before");
    record_.program = "reelmesh";
    record_.options = {{"model.path", "models/tiny"},
                       {"prompt.file", "gone.jsonl"},
                       {"prompt.negative", "dark"},
                       {"sample.steps", "20"},
                       {"sample.seed", "7"},
                       {"output.path", "before"},
                       {"output.if-exists", "replace"},
                       {"parallel.ulysses", "auto"},
                       {"parallel.device-map", "map.json"},
                       {"parallel.tune", "yes"},
                       {"trace.level", "ops"}};
    record_.provenance.working_folder = std::filesystem::current_path().string();
    record_.provenance.weights_hash = "0123";
    add(R"({"prompt":"one","negative_prompt":"dark","seed":7,"height":480,"width":720,"frames":49,
            "fps":8.0,"steps":20,"guidance":6.0})");
    add(R"({"prompt":"zwei größe","negative_prompt":"","seed":18446744073709551615,"height":64,
            "width":64,"frames":9,"fps":7.5,"steps":4,"guidance":1.1})");
  }
  void add(const char* request) {
    record_.clips.emplace_back();
    record_.clips.back().request = request;
  }
  void save() const { write_job("before", record_); }

  static Job parse(std::vector<std::string> words) {
    words.insert(words.begin(), {"run", "--from", "before/job.h5"});
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    return parse_run(static_cast<int>(argv.size()), argv.data());
  }
  static Job parse_more(std::vector<std::string> words) {
    words.insert(words.begin(), {"--output.path", "after"});
    return parse(std::move(words));
  }
  static std::string error_of_more(std::vector<std::string> words) {
    return error_of([&] { parse_more(std::move(words)); });
  }

  JobRecord record_;
};

TEST_F(From, TakesOptionsAndRequests) {
  save();
  const Job job = parse_more({});
  EXPECT_EQ(job.model.root, "models/tiny");
  EXPECT_EQ(job.output, "after");
  EXPECT_EQ(job.if_exists, IfExists::fail);
  EXPECT_EQ(job.trace_level, 3);
  EXPECT_EQ(job.sample.seed, 7U);
  EXPECT_FALSE(job.parallel.ulysses);
  EXPECT_FALSE(job.tune);
  EXPECT_EQ(job.source.from, "before/job.h5");
  EXPECT_EQ(job.source.weights_hash, "0123");
  EXPECT_EQ(job.source.given,
            (std::vector<std::pair<std::string, std::string>>{{"output.path", "after"}}));
  for (const auto& [name, value] : job.options) EXPECT_NE(name, "prompt.file") << value;

  ASSERT_EQ(job.clips.size(), 2U);
  EXPECT_EQ(job.clips[0].prompt, "one");
  EXPECT_EQ(job.clips[0].negative_prompt, "dark");
  EXPECT_EQ(job.clips[0].settings.seed, 7U);
  EXPECT_EQ(job.clips[0].settings.frames, 49);
  EXPECT_EQ(job.clips[1].prompt, "zwei größe");
  EXPECT_EQ(job.clips[1].settings.seed, 18446744073709551615ULL);
  EXPECT_EQ(job.clips[1].settings.height, 64);
  EXPECT_EQ(job.clips[1].settings.fps, 7.5);
  EXPECT_EQ(job.clips[1].settings.steps, 4);
  EXPECT_EQ(job.clips[1].settings.guidance, 1.1);
}

TEST_F(From, TheCommandLineWins) {
  save();
  const Job job = parse_more({"--sample.steps", "3", "--sample.seed", "100", "--prompt.negative",
                              "grey", "--sample.fps", "16", "--trace.level", "off"});
  ASSERT_EQ(job.clips.size(), 2U);
  EXPECT_EQ(job.sample.steps, 3);
  EXPECT_EQ(job.sample.seed, 100U);
  EXPECT_EQ(job.trace_level, 0);
  for (const ClipRequest& clip : job.clips) {
    EXPECT_FALSE(clip.settings.steps || clip.settings.seed || clip.settings.fps);
    EXPECT_EQ(clip.negative_prompt, "grey");
    EXPECT_TRUE(clip.settings.height && clip.settings.width && clip.settings.frames &&
                clip.settings.guidance);
  }
  const Job other = parse_more({"--prompt.text", "another", "--model.path", "elsewhere"});
  ASSERT_EQ(other.clips.size(), 1U);
  EXPECT_EQ(other.clips[0].prompt, "another");
  EXPECT_EQ(other.clips[0].negative_prompt, "dark");
  EXPECT_FALSE(other.clips[0].settings.seed);
  EXPECT_EQ(other.model.root, "elsewhere");
  EXPECT_EQ(other.source.weights_hash, "") << "another model is wanted";
}

TEST_F(From, EachOfRepeatedClipsIsAClip) {
  record_.options.emplace_back("prompt.repeat", "5");
  save();
  EXPECT_EQ(parse_more({}).clips.size(), 2U);
  EXPECT_TRUE(parse_more({}).source.chose_dtype) << "the earlier job did";
  EXPECT_EQ(parse_more({"--prompt.text", "another"}).clips.size(), 1U);
  EXPECT_EQ(parse_more({"--prompt.text", "another", "--prompt.repeat", "4"}).clips.size(), 4U);
  EXPECT_EQ(error_of([&] {
              parse_more({"--prompt.repeat", "4"});
            }),
            "64: --prompt.repeat: is given with --from, expected prompt.text or prompt.file with "
            "it: the clips of before/job.h5 are as they were");
}

TEST_F(From, BeginsFromTheSameFiles) {
  record_.options.insert(
      record_.options.end(),
      {{"prompt.image", "cat.png"}, {"prompt.last-image", "dog.png"}, {"sample.strength", "0.6"}});
  record_.clips.clear();
  add(R"({"prompt":"one","image":"/there/cat.png","input_hash":"0123",)"
      R"("last_image":"/there/dog.png","last_image_hash":"89ab"})");
  add(R"({"prompt":"two","video":"/there/cat.mp4","input_hash":"4567","strength":0.5})");
  save();
  const Job job = parse_more({});
  EXPECT_TRUE(job.image.empty() && job.last_image.empty() && job.video.empty() &&
              !job.sample.strength)
      << "the requests have them";
  EXPECT_EQ(job.clips[0].image, "/there/cat.png");
  EXPECT_EQ(job.clips[0].input_hash, "0123");
  EXPECT_EQ(job.clips[0].last_image, "/there/dog.png");
  const ClipRequest changed = parse_more({"--prompt.last-image", "cow.png"}).clips[0];
  EXPECT_TRUE(changed.last_image->empty() && changed.last_image_hash->empty());
  EXPECT_EQ(changed.image, "/there/cat.png");
  EXPECT_EQ(job.clips[1].video, "/there/cat.mp4");
  EXPECT_EQ(job.clips[1].settings.strength, 0.5);
  EXPECT_EQ(parse_more({"--prompt.video", "dog.mp4"}).clips[1].settings.strength, 0.5);
  EXPECT_FALSE(parse_more({"--prompt.image", "dog.png"}).clips[1].settings.strength);

  const Job other = parse_more({"--prompt.video", "dog.mp4", "--sample.strength", "0.7"});
  EXPECT_EQ(other.video, "dog.mp4");
  EXPECT_EQ(other.sample.strength, 0.7);
  for (const ClipRequest& clip : other.clips) {
    EXPECT_TRUE(clip.image->empty() && clip.video->empty() && clip.input_hash->empty());
    EXPECT_FALSE(clip.settings.strength);
  }
}

TEST_F(From, FindsPathsFromTheFolderOfThatJob) {
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::create_directories("there/models/tiny");
  write("there/map.json", "{}");
  write("there/a.safetensors", "");
  write("here.safetensors", "");
  record_.options.insert(record_.options.begin() + 1,
                         {{"model.lora", "a.safetensors:0.5"}, {"model.lora", "here.safetensors"}});
  record_.provenance.working_folder = (here / "there").string();
  save();
  EXPECT_EQ(parse_more({}).model.root, here / "there/models/tiny");
  const auto loras = parse_more({}).model.loras;
  ASSERT_EQ(loras.size(), 2U);
  EXPECT_EQ(loras[0].path, here / "there/a.safetensors");
  EXPECT_EQ(loras[0].scale, 0.5);
  EXPECT_EQ(loras[1].path, "here.safetensors");
  EXPECT_TRUE(parse_more({"--model.lora", "none"}).model.loras.empty());
  EXPECT_EQ(parse_more({}).parallel.device_map, here / "there/map.json");
  EXPECT_EQ(parse_more({}).model.transformer, here / "there/models/tiny/transformer");
  std::filesystem::create_directories("models/tiny");
  EXPECT_EQ(parse_more({}).model.root, "models/tiny") << "what is found from here is meant";
}

TEST_F(From, NeedsAnotherFolderAndNoJobFile) {
  save();
  write("job.cfg", "");
  EXPECT_EQ(error_of([] { parse({}); }),
            "64: output.path is missing, expected a folder for the results");
  for (const char* folder : {"before", "before/", "./before/../before"}) {
    EXPECT_THAT(error_of([&] {
                  parse({"--output.path", folder});
                }),
                StartsWith("64: output.path: found '" + std::string(folder)));
  }
  EXPECT_THAT(error_of_more({"--config", "job.cfg"}), StartsWith("64: --config and --from"));
}

TEST_F(From, RefusesWhatItCannotTake) {
  EXPECT_THAT(error_of_more({}), StartsWith("66: before/job.h5: file not found"));
  write("before/job.h5", "no HDF5");
  EXPECT_THAT(error_of_more({}), StartsWith("65: before/job.h5: found a file that HDF5"));
  record_.options.emplace_back("sample.magic", "1");
  save();
  EXPECT_THAT(error_of_more({}), HasSubstr("65: before/job.h5: found the option sample.magic"));
  record_.options.pop_back();
  add(R"({"prompt":"three","steps":0})");
  save();
  EXPECT_THAT(error_of_more({}), StartsWith("65: before/job.h5: /requests[2]: steps: found '0'"));
}

TEST_F(From, IsAlsoForPlans) {
  save();
  const char* const words[] = {"plan", "--from", "before/job.h5", "--ranks", "2"};
  const PlanOptions plan = parse_plan(5, words);
  EXPECT_EQ(plan.job.clips.size(), 2U);
  EXPECT_EQ(plan.job.model.root, "models/tiny");
  EXPECT_THAT(format_page(plan_help(), {}), HasSubstr("--from"));
  EXPECT_THAT(format_page(run_help(), {}), HasSubstr("--from"));
}

}  // namespace
}  // namespace reelmesh::app
