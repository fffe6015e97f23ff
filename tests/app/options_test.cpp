#include "options.hpp"

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>

#include "base/text.hpp"
#include "given.hpp"
#include "job/options.hpp"
#include "job/other_names.hpp"
#include "prompts.hpp"
#include "scratch.hpp"
#include "tensor/device.hpp"

namespace reelmesh::app {
namespace {

using testing::HasSubstr;

Job parse(std::vector<std::string> words) {
  std::vector<const char*> argv{"run"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse_run(static_cast<int>(argv.size()), argv.data());
}

// The required options, followed by those of the test.
std::vector<std::string> with_needed(std::vector<std::string> words) {
  std::vector<std::string> all{"--model.path", "m", "--output.path", "o", "--prompt.text", "cat"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}
Job parse_more(std::vector<std::string> words) { return parse(with_needed(std::move(words))); }
std::string error_of_more(std::vector<std::string> words) {
  return error_of([&] { parse_more(std::move(words)); });
}

class Options : public Scratch {};

TEST_F(Options, DefaultsAreThoseOfJob) {
  const Job job = parse_more({});
  const Job plain;
  EXPECT_EQ(job.model.root, "m");
  EXPECT_EQ(job.model.transformer, "m/transformer");
  EXPECT_EQ(job.model.text_encoder, "m/text_encoder");
  EXPECT_EQ(job.output, "o");
  ASSERT_EQ(job.clips.size(), 1U);
  EXPECT_EQ(job.clips[0].prompt, "cat");
  EXPECT_EQ(job.clips[0].negative_prompt, "");
  EXPECT_FALSE(job.sample.height || job.sample.width || job.sample.frames || job.sample.fps ||
               job.sample.steps || job.sample.guidance);
  EXPECT_FALSE(job.scheduler || job.threads || job.parallel.text || job.parallel.cfg);
  EXPECT_EQ(job.sample.seed, plain.sample.seed);
  EXPECT_EQ(job.dynamic_guidance, plain.dynamic_guidance);
  EXPECT_EQ(job.parallel.mode, plain.parallel.mode);
  EXPECT_EQ(job.parallel.shard, plain.parallel.shard);
  EXPECT_EQ(job.parallel.device_map, plain.parallel.device_map);
  EXPECT_EQ(job.dtype, plain.dtype);
  EXPECT_EQ(job.keep_video, plain.keep_video);
  EXPECT_EQ(job.keep_latents, plain.keep_latents);
  EXPECT_EQ(job.keep_embeddings, plain.keep_embeddings);
  EXPECT_EQ(job.if_exists, plain.if_exists);
  EXPECT_EQ(job.restart.every_steps, plain.restart.every_steps);
  EXPECT_EQ(job.restart.every_seconds, plain.restart.every_seconds);
  EXPECT_EQ(job.restart.on_signal, plain.restart.on_signal);
  EXPECT_EQ(job.max_time, std::nullopt);
  EXPECT_EQ(job.trace_level, plain.trace_level);
}

TEST_F(Options, RestartEveryIsANumberOfStepsATimeOrNone) {
  EXPECT_EQ(parse_more({"--restart.every", "90s"}).restart.every_seconds, 90);
  EXPECT_EQ(parse_more({"--restart.every", "90s"}).restart.every_steps, 0);
  EXPECT_FALSE(parse_more({"--restart.every", "none"}).restart.any());
  EXPECT_EQ(parse_more({"--max-time", "none"}).max_time, std::numeric_limits<double>::infinity());
}

TEST_F(Options, TunesWithAMachine) {
  EXPECT_FALSE(parse_more({}).tune);
  const std::string machine = std::string(REELMESH_TEST_DATA) + "/machine.cfg";
  EXPECT_TRUE(parse_more({"--parallel.tune", "yes", "--device.machine", machine}).tune);
  EXPECT_FALSE(parse_more({"--parallel.tune", "no"}).tune);
}

TEST_F(Options, TakesFloat16ForGpus) {
  const Job job = parse_more({"--numerics.dtype", "float16", "--device.backend", "cuda"});
  EXPECT_EQ(job.dtype, DType::float16);
  EXPECT_EQ(job.backend, Backend::cuda);
}

TEST_F(Options, ReadsEveryKey) {
  const Job job = parse({"--model.path=m",
                         "--model.transformer=t",
                         "--model.vae=v",
                         "--model.text-encoder=e",
                         "--model.tokenizer=k",
                         "--model.scheduler=s",
                         "--prompt.text=a=b # c",
                         "--prompt.text=dog",
                         "--prompt.negative",
                         "",
                         "--sample.height=480",
                         "--sample.width=720",
                         "--sample.frames=49",
                         "--sample.fps=7.5",
                         "--sample.steps=50",
                         "--sample.guidance=6",
                         "--sample.dynamic-guidance=on",
                         "--sample.scheduler=dpm",
                         "--sample.seed=18446744073709551615",
                         "--parallel.mode=split",
                         "--parallel.text=2",
                         "--parallel.replicas=3",
                         "--parallel.cfg=2",
                         "--parallel.ulysses=5",
                         "--parallel.ring=auto",
                         "--parallel.decode=4",
                         "--parallel.shard=grid",
                         "--parallel.device-map=0-11:0,12-23:1",
                         "--device.backend=cpu",
                         "--device.transport=mpi",
                         "--device.timeout=90s",
                         "--parallel.order=rank",
                         "--device.threads=3",
                         "--device.memory-limit=16GiB,8GiB",
                         "--device.speeds=1,2.5,1e3",
                         "--numerics.dtype=bfloat16",
                         "--output.path=o",
                         "--output.video=no",
                         "--output.latents=false",
                         "--output.embeddings=yes",
                         "--output.if-exists=resume",
                         "--restart.every=20",
                         "--restart.on-signal=no",
                         "--max-time=90min",
                         "--trace.level=ops"});
  EXPECT_EQ(job.model.transformer, "t");
  EXPECT_EQ(job.model.vae, "v");
  EXPECT_EQ(job.model.text_encoder, "e");
  EXPECT_EQ(job.model.tokenizer, "k");
  EXPECT_EQ(job.model.scheduler, "s");
  ASSERT_EQ(job.clips.size(), 2U);
  EXPECT_EQ(job.clips[0].prompt, "a=b # c");
  EXPECT_EQ(job.clips[1].prompt, "dog");
  EXPECT_EQ(job.sample.height, 480);
  EXPECT_EQ(job.sample.width, 720);
  EXPECT_EQ(job.sample.frames, 49);
  EXPECT_EQ(job.sample.fps, 7.5);
  EXPECT_EQ(job.sample.steps, 50);
  EXPECT_EQ(job.sample.guidance, 6);
  EXPECT_TRUE(job.dynamic_guidance);
  EXPECT_EQ(job.scheduler, "dpm");
  EXPECT_EQ(job.sample.seed, 18446744073709551615U);
  EXPECT_EQ(job.parallel.mode, Mode::split);
  EXPECT_EQ(job.parallel.text, 2);
  EXPECT_EQ(job.parallel.replicas, 3);
  EXPECT_EQ(job.parallel.cfg, 2);
  EXPECT_EQ(job.parallel.ulysses, 5);
  EXPECT_EQ(job.parallel.ring, std::nullopt);
  EXPECT_EQ(job.parallel.decode, 4);
  EXPECT_EQ(job.parallel.shard, Shard::grid);
  EXPECT_EQ(job.parallel.device_map, "0-11:0,12-23:1");
  EXPECT_EQ(job.parallel.order, Order::rank);
  EXPECT_EQ(job.transport, Transport::mpi);
  EXPECT_EQ(job.device_timeout, 90);
  EXPECT_EQ(job.threads, 3);
  EXPECT_EQ(job.speeds, (std::vector<double>{1, 2.5, 1000}));
  EXPECT_FALSE(job.measure_speeds);
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  EXPECT_EQ(job.memory_limits, (std::vector<std::int64_t>{16 * gib, 8 * gib}));
  EXPECT_EQ(job.dtype, DType::bfloat16);
  EXPECT_FALSE(job.keep_video);
  EXPECT_FALSE(job.keep_latents);
  EXPECT_TRUE(job.keep_embeddings);
  EXPECT_EQ(job.if_exists, IfExists::resume);
  EXPECT_EQ(job.restart.every_steps, 20);
  EXPECT_EQ(job.restart.every_seconds, 0);
  EXPECT_FALSE(job.restart.on_signal);
  EXPECT_EQ(job.max_time, 5400);
  EXPECT_EQ(job.trace_level, 3);
}

TEST_F(Options, EachChoiceIsItsOwn) {
  EXPECT_EQ(parse_more({"--parallel.mode", "phased"}).parallel.mode, Mode::phased);
  EXPECT_EQ(parse_more({"--parallel.mode", "auto"}).parallel.mode, Mode::automatic);
  EXPECT_EQ(parse_more({"--parallel.shard", "height"}).parallel.shard, Shard::height);
  EXPECT_EQ(parse_more({"--parallel.shard", "frames"}).parallel.shard, Shard::frames);
  EXPECT_EQ(parse_more({"--output.if-exists", "replace"}).if_exists, IfExists::replace);
  EXPECT_EQ(parse_more({"--trace.level", "off"}).trace_level, 0);
  EXPECT_EQ(parse_more({"--parallel.device-map", "map.json"}).parallel.device_map, "map.json");
  EXPECT_EQ(parse_more({"--parallel.device-map", "0:0,1-3:1"}).parallel.device_map, "0:0,1-3:1");
  std::string long_map = "0:0";  // a recursive parser would overflow the stack
  while (long_map.size() < 1000000) long_map += ",1-3:1";
  EXPECT_EQ(parse_more({"--parallel.device-map", long_map}).parallel.device_map, long_map);
  EXPECT_EQ(parse_more({"--device.threads", "auto"}).threads, std::nullopt);
  EXPECT_FALSE(parse_more({"--prompt.clean", "no"}).clean_prompts);
  EXPECT_EQ(parse_more({}).parallel.order, Order::node);
  EXPECT_TRUE(parse_more({"--device.speeds", "auto"}).measure_speeds);
  EXPECT_FALSE(parse_more({"--device.speeds", "equal"}).measure_speeds);
  EXPECT_TRUE(parse_more({"--device.speeds", "auto"}).speeds.empty());
}

TEST_F(Options, ListsThoseInEffectInTheOrderOfTheHelp) {
  const Job job = parse_more({"--sample.steps", "7", "--prompt.text", "dog"});
  const std::vector<std::pair<std::string, std::string>> beginning{
      {"model.path", "m"},
      {"model.lora-strict", "no"},
      {"model.unread", "refuse"},
      {"model.copy-to", "none"},
      {"prompt.text", "cat"},
      {"prompt.text", "dog"},
      {"prompt.repeat", "1"},
      {"prompt.clean", "yes"},
      {"sample.steps", "7"},
      {"sample.seed", "42"},
      {"sample.dynamic-guidance", "no"},
      {"sample.stop-after", "none"},
      {"sample.batch", "1"},
      {"output.path", "o"}};
  ASSERT_GE(job.options.size(), beginning.size());
  EXPECT_TRUE(std::equal(beginning.begin(), beginning.end(), job.options.begin()));
  EXPECT_EQ(job.options.back(), std::make_pair(std::string("trace.level"), std::string("stages")));
}

TEST_F(Options, HelpNamesEveryKeyAndItsDefault) {
  const std::string help = format_page(run_help(), {});
  for (const Option& key : reelmesh::options()) {
    if (!key.is_of(JobKind::clips)) continue;
    const std::string name = std::string("\n  --") + key.name + " " + key.value;
    const std::size_t begin = help.find(name);
    ASSERT_NE(begin, help.npos) << name;
    const std::string own = help.substr(begin, help.find("\n  --", begin + 1) - begin);
    if (key.fallback != nullptr) {
      EXPECT_THAT(own, HasSubstr(std::string("[default: ") + key.fallback + "]"));
    }
  }
  for (const char* section : {"[model]", "[prompt]", "[sample]", "[parallel]", "[device]",
                              "[numerics]", "[output]", "[trace]"}) {
    EXPECT_THAT(help, HasSubstr(section));
  }
}

// From which completion is made: "auto|split|phased" are all values, "FILE|none" some of them.
TEST_F(Options, TakeTheValuesThatTheHelpNames) {
  int closed = 0;
  for (const Option& key : reelmesh::options()) {
    Draft draft;
    draft.job.backend = Backend::cuda;  // which all types need
    if (key.kind == JobKind::training) draft.job.train.emplace();
    std::vector<std::string> words;
    bool are_all = true;
    std::istringstream parts(key.value);
    for (std::string part; std::getline(parts, part, '|');) {
      if (lower_case(part) != part) {
        are_all = false;
        continue;
      }
      words.push_back(part);
      EXPECT_NO_THROW(key.set(draft, part, key.name)) << key.name << " = " << part;
    }
    if (!are_all) continue;
    ++closed;
    const std::string error = error_of([&] { key.set(draft, "?", key.name); });
    const std::string prefix = fmt::format("64: {}: found '?', expected ", key.name);
    ASSERT_THAT(error, testing::StartsWith(prefix));
    const std::string expected = error.substr(prefix.size());
    if (expected.starts_with("one of ")) {
      EXPECT_EQ(expected, fmt::format("one of {}", fmt::join(words, ", "))) << key.name;
    } else {
      EXPECT_THAT(expected, HasSubstr(key.name == std::string("parallel.cfg") ? "auto" : words[0]));
      EXPECT_LE(words.size(), 3U) << key.name;
    }
  }
  EXPECT_GE(closed, 30);
}

TEST_F(Options, SuggestNothingThatIsFar) {
  for (const char* name : {"--nonsense", "--device.power-limit", "--x"}) {
    EXPECT_EQ(error_of_more({name, "5"}), std::string("64: unknown option ") + name);
  }
}

TEST(OtherNames, AreOfOptionsThatThereAre) {
  std::set<std::string_view> names;
  for (const OtherName& other : other_names()) {
    EXPECT_TRUE(names.insert(other.name).second) << other.name << " is there twice";
    EXPECT_EQ(other.option.empty(), !other.remark.empty()) << other.name;
    for (const std::string_view option : {other.option, other.of_training}) {
      EXPECT_TRUE(option.empty() || std::ranges::find(reelmesh::options(), option, &Option::name) !=
                                        reelmesh::options().end())
          << option;
    }
  }
}

TEST_F(Options, TakeAFolderForTheOutput) {
  for (const char* path : {"clip.mp4", "out/clip.h5", "a.gif", "a.webm"}) {
    EXPECT_THAT(error_of([&] {
                  parse({"--model.path", "m", "--output.path", path});
                }),
                testing::StartsWith(fmt::format(
                    "64: --output.path: found '{}', expected a folder; when the job is done, "
                    "reelmesh-export",
                    path)));
  }
}

// $HOME is another folder, or is not set, during a test.
class Home {
 public:
  explicit Home(const char* folder) {
    if (const char* before = std::getenv("HOME")) before_ = before;
    folder == nullptr ? unsetenv("HOME") : setenv("HOME", folder, 1);
  }
  ~Home() { before_ ? setenv("HOME", before_->c_str(), 1) : unsetenv("HOME"); }
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;

 private:
  std::optional<std::string> before_;
};

TEST_F(Options, ExpandHomeInEveryPath) {
  const Home home("/home/cat");
  write("job.cfg",
        "[model]\npath = ~/m\nlora = ~/l.safetensors:0.5\n[output]\npath = ~\n"
        "[parallel]\ndevice-map = ~/map.json\n");
  write("p.jsonl", R"({"prompt": "a", "image": "~/a.png"})");
  const Job job = parse({"--config", "job.cfg", "--prompt.file", "p.jsonl",
                         "--prompt.video=~/v.mp4", "--model.vae", "~backup"});
  EXPECT_EQ(job.model.root, "/home/cat/m");
  EXPECT_EQ(job.model.loras.at(0).path, "/home/cat/l.safetensors");
  EXPECT_EQ(job.model.loras.at(0).scale, 0.5);
  EXPECT_EQ(job.output, "/home/cat/");
  EXPECT_EQ(job.parallel.device_map, "/home/cat/map.json");
  EXPECT_EQ(job.clips.at(0).image, "/home/cat/a.png");
  EXPECT_EQ(job.video, "/home/cat/v.mp4");
  EXPECT_EQ(job.model.vae, "~backup") << "the name of a file";
  EXPECT_THAT(error_of([&] { parse({"--config=~/job.cfg"}); }), HasSubstr("/home/cat/job.cfg"));

  EXPECT_THAT(error_of([&] { parse({"--model.path=~cat/m"}); }),
              HasSubstr("64: --model.path: found '~cat/m', expected a path"));
  const Home none(nullptr);
  EXPECT_THAT(error_of([&] {
                parse({"--config", "job.cfg"});
              }),
              HasSubstr("model.path: found '~/m', expected a path without ~, as HOME is not set"));
}

TEST_F(Options, RefusesWithOneMessage) {
  const std::vector<Wrong> table{
      // names
      {{"--sample.stepz", "5"}, "64: unknown option --sample.stepz; did you mean --sample.steps?"},
      {{"--sample.stepz=5"}, "64: unknown option --sample.stepz; did you mean --sample.steps?"},
      {{"--sample.ste", "5"},  // Boost would accept the prefix
       "64: unknown option --sample.ste; did you mean --sample.steps?"},
      {{"--steps", "5"}, "64: unknown option --steps; did you mean --sample.steps?"},
      {{"--confg", "f"}, "64: unknown option --confg; did you mean --config?"},
      {{"--device.power-limit", "1kW"}, "64: unknown option --device.power-limit"},
      // names and values of other programs
      {{"--num_inference_steps", "5"},
       "64: unknown option --num_inference_steps; did you mean --sample.steps?"},
      {{"--fp16", "yes"}, "64: unknown option --fp16; numerics.dtype = float16 gives it, on GPUs"},
      {{"--output_video_path", "a.mp4"},
       "64: unknown option --output_video_path; did you mean --output.path?"},
      {{"--num-inference-steps=5"},
       "64: unknown option --num-inference-steps; did you mean --sample.steps?"},
      {{"--Guidance_Scale", "6"},
       "64: unknown option --Guidance_Scale; did you mean --sample.guidance?"},
      {{"--cfg", "6"}, "64: unknown option --cfg; did you mean --sample.guidance?"},
      {{"--prompt", "cat"}, "64: unknown option --prompt; did you mean --prompt.text?"},
      {{"--num_frames", "9"}, "64: unknown option --num_frames; did you mean --sample.frames?"},
      {{"--ulysses_degree", "2"},
       "64: unknown option --ulysses_degree; did you mean --parallel.ulysses?"},
      {{"--model_path", "m"}, "64: unknown option --model_path; did you mean --model.path?"},
      {{"--save_path", "o"}, "64: unknown option --save_path; did you mean --output.path?"},
      {{"--train.lr", "1"},
       "64: unknown option --train.lr; train.learning-rate is an option of reelmesh train"},
      {{"--train.steps", "1"},
       "64: unknown option --train.steps; it is an option of reelmesh train"},
      {{"--lora.dropout", "0"},
       "64: unknown option --lora.dropout; it is an option of reelmesh train"},
      {{"--numerics.dtype", "bf16"},
       "64: --numerics.dtype: found 'bf16', expected bfloat16, the name of this type here"},
      {{"--numerics.dtype", "fp16"}, "64: --numerics.dtype: found 'fp16', expected float16"},
      {{"--numerics.dtype", "float"}, "64: --numerics.dtype: found 'float', expected float32"},
      {{"--numerics.dtype", "torch.half"},
       "64: --numerics.dtype: found 'torch.half', expected float16"},
      {{"--numerics.reproducible", "maybe"},
       "64: --numerics.reproducible: found 'maybe', expected "},
      {{"stray"}, "64: unexpected argument 'stray', expected options such as --sample.steps 50"},
      {{"-x"}, "64: unexpected argument '-x'"},
      {{"--", "x"}, "64: unexpected argument"},
      // missing and duplicate values
      {{"--sample.steps"}, "64: --sample.steps: found no value, expected one"},
      {{"--sample.steps="}, "64: --sample.steps: found no value, expected one"},
      {{"--sample.steps", "--sample.seed", "1"},
       "64: --sample.steps: found no value, expected one"},
      {{"--sample.steps", "5", "--sample.steps=6"},
       "64: --sample.steps: given twice ('5' and '6'), expected once"},
      {{"--config", "a.cfg", "--config", "b.cfg"}, "64: --config: given twice"},
      // numbers
      {{"--sample.steps", "-1"},  // Boost would convert it to 4294967295
       "64: --sample.steps: found '-1', expected a whole number from 1 to 1000"},
      {{"--sample.steps", "0"},
       "64: --sample.steps: found '0', expected a whole number from 1 to 1000"},
      {{"--sample.steps", "1001"},
       "64: --sample.steps: found '1001', expected a whole number from 1 to"},
      {{"--sample.steps", "5x"},
       "64: --sample.steps: found '5x', expected a whole number from 1 to 1000"},
      {{"--sample.steps", " 5"},
       "64: --sample.steps: found ' 5', expected a whole number from 1 to 1000"},
      {{"--sample.steps", "+5"}, "64: --sample.steps: found '+5', expected a whole number"},
      {{"--sample.steps", "5.0"}, "64: --sample.steps: found '5.0', expected a whole number"},
      {{"--sample.steps", ""}, "64: --sample.steps: found '', expected a whole number"},
      {{"--sample.steps", "99999999999999999999"},
       "64: --sample.steps: found '99999999999999999999'"},
      {{"--sample.steps", "5 # five"},
       "64: --sample.steps: found '5 # five', expected a whole number from 1 to 1000 (a comment "
       "needs a "
       "line of its own)"},
      {{"--sample.height", "7"},
       "64: --sample.height: found '7', expected a whole number from 8 to 16384"},
      {{"--sample.width", "16385"},
       "64: --sample.width: found '16385', expected a whole number from 8 to 16384"},
      {{"--sample.frames", "0"},
       "64: --sample.frames: found '0', expected a whole number from 1 to 10000"},
      {{"--sample.fps", "0"}, "64: --sample.fps: found '0', expected a number from 0.01 to 1000"},
      {{"--sample.fps", "nan"},
       "64: --sample.fps: found 'nan', expected a number from 0.01 to 1000"},
      {{"--sample.guidance", "inf"},
       "64: --sample.guidance: found 'inf', expected a number from 0 to 1000"},
      {{"--sample.guidance", "-6"},
       "64: --sample.guidance: found '-6', expected a number from 0 to 1000"},
      {{"--sample.guidance", "6,0"},
       "64: --sample.guidance: found '6,0', expected a number from 0 to 1000"},
      {{"--sample.guidance", "1e999"}, "64: --sample.guidance: found '1e999', expected a number"},
      {{"--sample.seed", "-1"},
       "64: --sample.seed: found '-1', expected a whole number from 0 to 18446744073709551615"},
      {{"--sample.seed", "18446744073709551616"},
       "64: --sample.seed: found '18446744073709551616'"},
      {{"--parallel.text", "0"},
       "64: --parallel.text: found '0', expected auto or a whole number from 1 to 65536"},
      {{"--parallel.replicas", "two"},
       "64: --parallel.replicas: found 'two', expected auto or a whole"},
      {{"--parallel.ulysses", "-2"},
       "64: --parallel.ulysses: found '-2', expected auto or a whole number"},
      {{"--parallel.cfg", "3"}, "64: --parallel.cfg: found '3', expected auto, 1 or 2"},
      {{"--parallel.ring", "none"},
       "64: --parallel.ring: found 'none', expected auto or a whole number"},
      {{"--parallel.decode", "65537"},
       "64: --parallel.decode: found '65537', expected auto or a whole"},
      {{"--device.threads", "0"},
       "64: --device.threads: found '0', expected a whole number from 1 to 4096"},
      {{"--device.memory-limit", "much"},
       "64: --device.memory-limit: found 'much', expected a size such as"},
      {{"--device.memory-limit", "1GiB,,2GiB"},
       "64: --device.memory-limit: found '', expected a size"},
      {{"--device.memory-limit", "0"},
       "64: --device.memory-limit: found '0', expected a size above 0"},
      {{"--device.memory-limit", "-1GiB"},
       "64: --device.memory-limit: found '-1GiB', expected a size"},
      {{"--device.speeds", "fast"},
       "64: --device.speeds: found 'fast', expected a number from 0.001"},
      {{"--device.speeds", "1,,2"}, "64: --device.speeds: found '', expected a number"},
      {{"--device.speeds", "1,0"}, "64: --device.speeds: found '0', expected a number"},
      {{"--device.speeds", "1,-2"}, "64: --device.speeds: found '-2', expected a number"},
      {{"--device.timeout", "1e308min"}, "64: --device.timeout: found '1e308min', expected a time"},
      {{"--prompt.text", std::string(65537, 'x')},
       "64: --prompt.text: found a prompt of 65537 bytes, expected at most 65536"},
      {{"--parallel.order", "host"},
       "64: --parallel.order: found 'host', expected one of node, rank"},
      {{"--device.backend", "cpu", "--numerics.dtype", "float16"},
       "64: --numerics.dtype: found float16, expected float32"},
      {{"--numerics.dtype", "float16"}, "64: --numerics.dtype: found float16, expected float32"},
      // choices
      {{"--device.backend", "tpu"},
       "64: --device.backend: found 'tpu', expected one of auto, cpu, cuda"},
      {{"--device.transport", "tcp"},
       "64: --device.transport: found 'tcp', expected one of auto, nccl, mpi"},
      {{"--restart.every", "0"}, "64: --restart.every: found '0', expected a whole number from 1"},
      {{"--restart.every", "often"}, "64: --restart.every: found 'often', expected a time such as"},
      {{"--max-time", "0s"}, "64: --max-time: found '0s', expected a time above 0"},
      {{"--max-time", "1h", "--max-time", "2h"}, "64: --max-time: given twice"},
      {{"--parallel.tune", "yes"}, "64: device.machine is missing, expected a machine file"},
      {{"--parallel.tune", "3"}, "64: --parallel.tune: found '3', expected yes or no"},
      {{"--tune"}, "64: unknown option --tune; did you mean --parallel.tune?"},
      {{"--device.timeout", "soon"},
       "64: --device.timeout: found 'soon', expected a time such as 90s"},
      {{"--device.timeout", "0s"}, "64: --device.timeout: found '0s', expected a time above 0"},
      {{"--numerics.dtype", "float64"},
       "64: --numerics.dtype: found 'float64', expected one of float32, bfloat16, float16"},
      {{"--sample.scheduler", "heun"},
       "64: --sample.scheduler: found 'heun', expected one of ddim, dpm, unipc, euler"},
      {{"--sample.noise-levels", "0.5,0.75"},
       "64: --sample.noise-levels: found '0.5,0.75', expected 1 to 1000 numbers above 0 and at "
       "most 1"},
      {{"--sample.flow-shift", "0"},
       "64: --sample.flow-shift: found '0', expected a number above 0, at most 1000"},
      {{"--sample.dynamic-guidance", "1"},
       "64: --sample.dynamic-guidance: found '1', expected yes or no"},
      {{"--parallel.mode", "Split"},
       "64: --parallel.mode: found 'Split', expected one of auto, split, phased"},
      {{"--parallel.shard", "width"},
       "64: --parallel.shard: found 'width', expected one of auto, height, frames, grid"},
      {{"--parallel.device-map", "0-11"},
       "64: --parallel.device-map: found '0-11', expected auto, ranges (layers:rank) such as"},
      {{"--parallel.device-map", "0-11:0,"},
       "64: --parallel.device-map: found '0-11:0,', expected auto"},
      {{"--output.video", "maybe"}, "64: --output.video: found 'maybe', expected yes or no"},
      {{"--output.latents", ""}, "64: --output.latents: found '', expected yes or no"},
      {{"--output.embeddings", "2"}, "64: --output.embeddings: found '2', expected yes or no"},
      {{"--output.if-exists", "keep"},
       "64: --output.if-exists: found 'keep', expected one of fail, resume, replace"},
      {{"--trace.level", "all"},
       "64: --trace.level: found 'all', expected one of off, stages, layers, ops"},
      // texts and files
      {{"--prompt.text", "\xff"}, "65: --prompt.text: found byte 0 (0xff), expected UTF-8 text"},
      {{"--prompt.negative", "caf\xe9"},
       "65: --prompt.negative: found byte 3 (0xe9), expected UTF-8 text"},
      {{"--model.vae", ""}, "64: --model.vae: found an empty value, expected a path"},
      {{"--config", "none.cfg"}, "66: --config: file 'none.cfg' not found"},
      {{"--config", "."}, "66: --config: '.' is not a file"},
      {{"--prompt.file", "none.txt"}, "66: prompt.file: file 'none.txt' not found"},
      {{"--prompt.file", "prompts.csv"},
       "64: prompt.file: found 'prompts.csv', expected a .txt, .jsonl or .json file"},
  };
  for (const Wrong& wrong : table) {
    const std::string error = error_of_more(wrong.words);
    EXPECT_THAT(error, testing::StartsWith(wrong.error));
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST_F(Options, NeedsModelOutputAndPrompt) {
  EXPECT_EQ(error_of([] { parse({}); }),
            "64: model.path is missing, expected the folder of a checkpoint");
  EXPECT_EQ(error_of([] {
              parse({"--model.path", "m"});
            }),
            "64: output.path is missing, expected a folder for the results");
  EXPECT_EQ(error_of([] {
              parse({"--model.path", "m", "--output.path", "o"});
            }),
            "64: no prompt is given, expected prompt.text or prompt.file");
}

TEST_F(Options, ValuesMayLookLikeAnything) {
  EXPECT_EQ(parse_more({"--prompt.negative", "--blurry"}).clips[0].negative_prompt, "--blurry");
  EXPECT_EQ(parse_more({"--prompt.negative=-1"}).clips[0].negative_prompt, "-1");
  EXPECT_EQ(parse_more({"--prompt.negative", "Ein Bär 熊 🐻"}).clips[0].negative_prompt,
            "Ein Bär 熊 🐻");
}

TEST_F(Options, CommandLineWinsOverTheFile) {
  write("job.cfg",
        "[model]\npath = from_file\n[sample]\nsteps = 5\nheight = 64\n"
        "[output]\npath = o\n[prompt]\ntext = one\ntext = two\nnegative = bad\n");
  const Job file = parse({"--config", "job.cfg"});
  EXPECT_EQ(file.model.root, "from_file");
  ASSERT_EQ(file.clips.size(), 2U);
  EXPECT_EQ(file.clips[1].prompt, "two");
  EXPECT_EQ(file.sample.steps, 5);

  const Job both = parse({"--sample.steps", "9", "--config", "job.cfg", "--prompt.text", "three"});
  EXPECT_EQ(both.sample.steps, 9);
  EXPECT_EQ(both.sample.height, 64);
  ASSERT_EQ(both.clips.size(), 1U) << "prompts are taken whole from one of the two";
  EXPECT_EQ(both.clips[0].prompt, "three");
  EXPECT_EQ(both.clips[0].negative_prompt, "bad");

  write("more.txt", "four\n");
  const Job from_list = parse({"--config", "job.cfg", "--prompt.file", "more.txt"});
  ASSERT_EQ(from_list.clips.size(), 1U);
  EXPECT_EQ(from_list.clips[0].prompt, "four");
}

TEST_F(Options, TextsComeBeforeThoseOfThePromptsFile) {
  write("more.txt", "two\nthree\n");
  const Job job = parse_more({"--prompt.file", "more.txt"});
  ASSERT_EQ(job.clips.size(), 3U);
  EXPECT_EQ(job.clips[0].prompt, "cat");
  EXPECT_EQ(job.clips[2].prompt, "three");
}

TEST_F(Options, PromptsMayBeRepeated) {
  write("more.jsonl", "{\"prompt\": \"dog\", \"seed\": 7}\n{\"prompt\": \"cow\", \"repeat\": 1}");
  const Job job = parse_more({"--prompt.repeat", "3", "--prompt.file", "more.jsonl"});
  std::vector<std::string> prompts;
  std::vector<std::optional<std::uint64_t>> seeds;
  for (const ClipRequest& clip : job.clips) {
    prompts.push_back(clip.prompt);
    seeds.push_back(clip.settings.seed);
  }
  EXPECT_EQ(prompts, (std::vector<std::string>{"cat", "cat", "cat", "dog", "dog", "dog", "cow"}));
  // Those without one have sample.seed and their number.
  EXPECT_EQ(seeds, (std::vector<std::optional<std::uint64_t>>{
                       std::nullopt, std::nullopt, std::nullopt, 7, 8, 9, std::nullopt}));
  write("job.cfg", "[prompt]\nrepeat = 2\n");
  EXPECT_EQ(parse_more({"--config", "job.cfg"}).clips.size(), 2U);
  EXPECT_EQ(error_of_more({"--prompt.repeat", "0"}),
            "64: --prompt.repeat: found '0', expected a whole number from 1 to 1000000");
}

TEST_F(Options, WhoChoseTheTypeIsKnown) {
  write("job.cfg", "[numerics]\ndtype = float32\n");
  EXPECT_FALSE(parse_more({}).source.chose_dtype);
  EXPECT_FALSE(parse_more({"--config", "job.cfg"}).source.chose_dtype);
  EXPECT_TRUE(
      parse_more({"--config", "job.cfg", "--numerics.dtype", "float32"}).source.chose_dtype);
}

TEST_F(Options, RefusesMoreThanFits) {
  std::string lines;
  for (int i = 0; i < 1000000; ++i) lines += "a\n";
  write("million.txt", lines);
  EXPECT_EQ(error_of_more({"--prompt.file", "million.txt"}),
            "64: 1000001 clips are asked for, expected at most 1000000");
  EXPECT_EQ(error_of_more({"--prompt.repeat", "600000", "--prompt.text", "dog"}),
            "64: prompt.repeat: found 600000, which with the 600000 clips before it are more than "
            "1000000");
  write("large.cfg", "");
  std::filesystem::resize_file("large.cfg", (64U << 20U) + 1);
  EXPECT_EQ(error_of_more({"--config", "large.cfg"}),
            "65: --config: found more than 64 MiB in 'large.cfg', expected a text file");
}

TEST_F(Options, EveryJobFileOfTheProjectParses) {
  std::filesystem::current_path(REELMESH_SOURCE);
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator("inputs")) {
    if (entry.path().extension() != ".cfg") continue;
    const std::string name = entry.path().filename().string();
    // Those of trainings: train_options_test.cpp.
    if (name.ends_with("-lora.cfg") || name.ends_with("-train.cfg")) continue;
    seen.insert(name);
    const std::string error = error_of([&] {
      const Job job = parse({"--config", entry.path().string(), "--model.path", "m"});
      EXPECT_FALSE(job.clips.empty()) << entry.path();
      EXPECT_TRUE(job.sample.height && job.sample.width && job.sample.frames && job.sample.steps &&
                  job.sample.guidance)
          << entry.path();
      EXPECT_TRUE(job.sample.fps || !job.video.empty()) << entry.path();
    });
    EXPECT_EQ(error, "") << entry.path();
  }
  EXPECT_THAT(seen, testing::IsSupersetOf({"demo.cfg", "cogvideox-2b.cfg", "cogvideox-5b.cfg",
                                           "cogvideox-5b-i2v.cfg", "cogvideox-5b-v2v.cfg",
                                           "cogvideox1.5-5b.cfg", "cogvideox1.5-5b-i2v.cfg"}));
  EXPECT_EQ(error_of([] {
              EXPECT_EQ(parse({"--config", "inputs/demo.cfg"}).output, "demo/output");
            }),
            "")
      << "the demo's needs nothing more";
  EXPECT_EQ(error_of([] { EXPECT_EQ(read_prompts("inputs/prompts.txt", {}, "").size(), 3U); }), "");
  EXPECT_EQ(error_of([] { EXPECT_EQ(read_prompts("inputs/prompts.jsonl", {}, "").size(), 3U); }),
            "");
}

TEST_F(Options, LorasHaveScalesAndAddUp) {
  const auto loras = parse_more({"--model.lora", "a.safetensors", "--model.lora",
                                 "b.safetensors:0.5", "--model.lora", "run:12/c.safetensors",
                                 "--model.lora", "folder:-2e-1", "--model.lora", "a:b"})
                         .model.loras;
  ASSERT_EQ(loras.size(), 5U);
  const std::vector<std::pair<std::string, double>> expected{{"a.safetensors", 1},
                                                             {"b.safetensors", 0.5},
                                                             {"run:12/c.safetensors", 1},
                                                             {"folder", -0.2},
                                                             {"a:b", 1}};
  for (std::size_t i = 0; i < loras.size(); ++i) {
    EXPECT_EQ(loras[i].path, expected[i].first);
    EXPECT_EQ(loras[i].scale, expected[i].second);
  }
  EXPECT_TRUE(parse_more({"--model.lora", "a", "--model.lora", "none"}).model.loras.empty());
  const ModelPaths second = parse_more({"--model.lora-2", "a:0.5", "--model.lora", "b"}).model;
  ASSERT_EQ(second.loras_2.size(), 1U);
  EXPECT_EQ(second.loras_2[0].path, "a");
  EXPECT_EQ(second.loras_2[0].scale, 0.5);
  EXPECT_EQ(second.loras.size(), 1U);
  EXPECT_EQ(second.text(), "m with LoRA b, a of the second transformer (scale 0.5)");
  EXPECT_FALSE(parse_more({}).model.strict_loras);
  EXPECT_TRUE(parse_more({"--model.lora-strict", "yes"}).model.strict_loras);
  EXPECT_FALSE(parse_more({}).model.allow_unread);
  EXPECT_TRUE(parse_more({"--model.unread", "allow"}).model.allow_unread);
  EXPECT_THAT(error_of_more({"--model.unread", "yes"}), HasSubstr("expected refuse or allow"));
  for (const char* text : {"a.safetensors:", "a.safetensors:x", "a.safetensors:inf", "a:1001"}) {
    EXPECT_THAT(error_of_more({"--model.lora", text}), HasSubstr("64: --model.lora: found '"))
        << text;
  }
  EXPECT_THAT(error_of_more({"--model.lora", ":1"}), HasSubstr("expected FILE or FILE:SCALE"));
  std::vector<std::string> many;
  for (int i = 0; i < 65; ++i) many.insert(many.end(), {"--model.lora", "a"});
  EXPECT_THAT(error_of_more(many), HasSubstr("found 65 files, expected at most 64"));
}

TEST(ModelOptions, Inspect) {
  const char* good[] = {"inspect", "folder"};
  EXPECT_EQ(parse_inspect(2, good).model, "folder");
  EXPECT_EQ(error_of([&] { parse_inspect(1, good); }),
            "64: found 0 arguments, expected MODEL_DIR or LORA");
  const char* loras[] = {"inspect", "folder", "--lora", "a", "--lora", "b:0.5"};
  const InspectOptions options = parse_inspect(6, loras);
  ASSERT_EQ(options.loras.size(), 2U);
  EXPECT_EQ(options.loras[1].path, "b");
  EXPECT_EQ(options.loras[1].scale, 0.5);
  const char* wrong[] = {"inspect", "folder", "--json"};
  EXPECT_THAT(error_of([&] { parse_inspect(3, wrong); }), HasSubstr("64: unknown option --json"));
}

TEST(ModelOptions, MakeModel) {
  const auto parse_words = [](std::vector<const char*> words) {
    words.insert(words.begin(), "make-model");
    return parse_make_model(static_cast<int>(words.size()), words.data());
  };
  const MakeModelOptions plain = parse_words({"tiny-cogvideox", "demo/model"});
  EXPECT_EQ(plain.preset, "tiny-cogvideox");
  EXPECT_EQ(plain.folder, "demo/model");
  EXPECT_EQ(plain.seed, 42U);
  EXPECT_EQ(plain.dtype, std::nullopt);
  EXPECT_EQ(plain.text, std::nullopt);
  const MakeModelOptions full =
      parse_words({"--seed", "7", "cogvideox-2b", "--dtype=float16", "big"});
  EXPECT_EQ(full.preset, "cogvideox-2b");
  EXPECT_EQ(full.folder, "big");
  EXPECT_EQ(full.seed, 7U);
  EXPECT_EQ(full.dtype, DType::float16);
  EXPECT_EQ(full.layers, std::nullopt);
  const MakeModelOptions cut = parse_words({"a", "b", "--layers=2", "--text-layers", "4"});
  EXPECT_EQ(cut.layers, 2);
  EXPECT_EQ(cut.text_layers, 4);
  EXPECT_EQ(error_of([&] {
              parse_words({"a", "b", "--layers=0"});
            }),
            "64: --layers: found '0', expected a whole number from 1 to 1000");
  EXPECT_EQ(parse_words({"a", "b", "--text", "lines.txt"}).text, "lines.txt");
  EXPECT_TRUE(plain.sync);
  EXPECT_FALSE(parse_words({"--no-sync", "a", "b"}).sync);
  EXPECT_EQ(error_of([&] {
              parse_words({"a", "b", "--text="});
            }),
            "64: --text: found no value, expected one");
  EXPECT_EQ(error_of([&] { parse_words({"tiny"}); }), "64: found 1 arguments, expected PRESET DIR");
  EXPECT_EQ(error_of([&] {
              parse_words({"a", ""});
            }),
            "64: an argument is empty, expected PRESET DIR");
  EXPECT_EQ(error_of([&] {
              parse_words({"a", "b", "--seed", "-1"});
            }),
            "64: --seed: found '-1', expected a whole number from 0 to 18446744073709551615");
  EXPECT_EQ(error_of([&] {
              parse_words({"a", "b", "--seed=1", "--seed=2"});
            }),
            "64: --seed: given twice, expected once");
  EXPECT_EQ(error_of([&] {
              parse_words({"a", "b", "--dtype", "int8"});
            }),
            "64: --dtype: found 'int8', expected one of float32, bfloat16, float16");
}

}  // namespace
}  // namespace reelmesh::app
