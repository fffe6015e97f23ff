// Options of `train`, and of `plan` for a training.
#include <gmock/gmock.h>

#include <algorithm>

#include "job/options.hpp"
#include "options.hpp"
#include "plan_options.hpp"
#include "scratch.hpp"

namespace reelmesh::app {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

template <class Parse>
auto call(Parse&& parse, std::vector<std::string> words) {
  std::vector<const char*> argv{"command"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse(static_cast<int>(argv.size()), argv.data());
}

Job parse_training(std::vector<std::string> words) { return call(parse_train, std::move(words)); }
PlanOptions plan(std::vector<std::string> words) {
  words.insert(words.end(), {"--model.path", "m", "--ranks", "2"});
  return call([](int argc, const char* const* argv) { return parse_plan(argc, argv); },
              std::move(words));
}
// With the required options before those of the test.
Job with_data(std::vector<std::string> words) {
  std::vector<std::string> all{"--model.path", "m",     "--output.path", "o",
                               "--data.path",  "clips", "--train.steps", "7"};
  all.insert(all.end(), words.begin(), words.end());
  return parse_training(std::move(all));
}

class TrainOptions : public Scratch {};

TEST_F(TrainOptions, DefaultsAreThoseOfTrainSettings) {
  const Job job = with_data({});
  EXPECT_EQ(job.model.transformer, "m/transformer");
  EXPECT_EQ(job.output, "o");
  EXPECT_TRUE(job.clips.empty());
  ASSERT_TRUE(job.train);
  const TrainSettings &found = *job.train, plain;
  ASSERT_EQ(found.data.paths.size(), 1U);
  EXPECT_EQ(found.data.paths[0].path, "clips");
  EXPECT_EQ(found.data.paths[0].repeat, 1);
  EXPECT_FALSE(found.data.height || found.data.width || found.data.frames || found.data.fps ||
               found.data.own_fps);
  EXPECT_EQ(found.data.frames_from, plain.data.frames_from);
  EXPECT_EQ(found.data.crop, plain.data.crop);
  EXPECT_EQ(found.data.flip, plain.data.flip);
  EXPECT_EQ(found.data.shuffle, plain.data.shuffle);
  EXPECT_EQ(found.data.strict, plain.data.strict);
  EXPECT_EQ(found.data.cache, plain.data.cache);
  EXPECT_EQ(found.lora.rank, plain.lora.rank);
  EXPECT_EQ(found.lora.alpha, plain.lora.alpha);
  EXPECT_TRUE(found.lora.rank_pattern.empty() && found.lora.alpha_pattern.empty());
  EXPECT_EQ(found.lora.targets, plain.lora.targets);
  EXPECT_EQ(found.lora.init, plain.lora.init);
  EXPECT_EQ(found.steps, 7);
  EXPECT_EQ(found.batch, plain.batch);
  EXPECT_EQ(found.seed, plain.seed);
  EXPECT_EQ(found.learning_rate, plain.learning_rate);
  EXPECT_EQ(found.schedule, plain.schedule);
  EXPECT_EQ(found.warmup, plain.warmup);
  EXPECT_EQ(found.optimizer, plain.optimizer);
  const ops::OptimizerSettings of_optimizer = found.optimizer_settings;
  EXPECT_EQ(of_optimizer.beta1, plain.optimizer_settings.beta1);
  EXPECT_EQ(of_optimizer.beta2, plain.optimizer_settings.beta2);
  EXPECT_EQ(of_optimizer.weight_decay, plain.optimizer_settings.weight_decay);
  EXPECT_EQ(of_optimizer.epsilon, plain.optimizer_settings.epsilon);
  EXPECT_EQ(of_optimizer.momentum, plain.optimizer_settings.momentum);
  EXPECT_EQ(found.clip, plain.clip);
  EXPECT_EQ(found.caption_dropout, plain.caption_dropout);
  EXPECT_EQ(found.image_dropout, plain.image_dropout);
  EXPECT_EQ(found.flow_shift, plain.flow_shift);
  EXPECT_EQ(found.samples_posterior, plain.samples_posterior);
  EXPECT_EQ(found.save_every, plain.save_every);
  EXPECT_EQ(found.reproducible, plain.reproducible);
}

TEST_F(TrainOptions, EveryJobFileOfTheProjectParses) {
  std::filesystem::current_path(REELMESH_SOURCE);
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("inputs")) {
    const std::string path = entry.path().string();
    const bool is_lora = path.ends_with("-lora.cfg");
    if (!is_lora && !path.ends_with("-train.cfg")) continue;
    ++count;
    const TrainSettings train = *parse_training({"--config", path}).train;
    EXPECT_EQ(train.method->name, is_lora ? "lora" : "full") << path;
    EXPECT_TRUE(train.data.height && train.data.width && train.data.frames && train.data.fps)
        << path;
    EXPECT_GT(train.steps, 0) << path;
  }
  EXPECT_GE(count, 5);
}

TEST_F(TrainOptions, ReadsEveryKey) {
  write("train.cfg",
        "[model]\npath = m\n[output]\npath = o\nif-exists = resume\n"
        "[data]\npath = list.csv\nheight = 480\nwidth = 720\nframes = 49\nfps = 7.5\n"
        "frames-from = middle\ncrop = random\nflip = 0.25\nshuffle = no\nstrict = yes\ncache = "
        "samples\n"
        "[train]\nmethod = lora\nsteps = 1000\nbatch = 3\nseed = 18446744073709551615\n"
        "learning-rate = 2e-5\nschedule = cosine\nwarmup = 10\noptimizer = sgd\nbeta1 = 0.8\n"
        "beta2 = 0.999\nweight-decay = 0\nepsilon = 1e-6\nmomentum = 0.7\nclip = "
        "none\ncaption-dropout = 0.1\n"
        "image-dropout = 0.2\nflow-shift = 7.5\nposterior = mode\nsave-every = 50\nreproducible = "
        "no\nsample-every = "
        "7\n"
        "sample-steps = 12\nsample-guidance = 1.5\nsample-prompts = prompts.txt\n"
        "[lora]\nrank = 8\nalpha = 4.5\ntargets = to_k,ff.net.0.proj\ndropout = 0.05\n"
        "rank-pattern = transformer_blocks.0.attn1.to_k=4096,to_k=1\n"
        "alpha-pattern = ff.net.0.proj=0.25\n"
        "[numerics]\ndtype = bfloat16\n[device]\nthreads = 3\n[restart]\nevery = 20\n");
  write("prompts.txt", "a cat\n# a dog\na fox\n");
  const Job job =
      parse_training({"--config", "train.cfg", "--train.batch", "4", "--max-time", "1h"});
  EXPECT_EQ(job.if_exists, IfExists::resume);
  EXPECT_EQ(job.dtype, DType::bfloat16);
  EXPECT_EQ(job.threads, 3);
  EXPECT_EQ(job.restart.every_steps, 20);
  EXPECT_EQ(job.max_time, 3600);
  const TrainSettings& train = *job.train;
  EXPECT_EQ(train.data.paths.at(0).path, "list.csv");
  EXPECT_EQ(train.data.height, 480);
  EXPECT_EQ(train.data.width, 720);
  EXPECT_EQ(train.data.frames, 49);
  EXPECT_EQ(parse_training({"--config", "train.cfg", "--data.buckets", "49x480x720,1x64x32"})
                .train->data.buckets,
            (std::vector<VideoSize>{{480, 720, 49}, {64, 32, 1}}));
  EXPECT_EQ(train.data.fps, 7.5);
  const DataSettings own =
      parse_training({"--config", "train.cfg", "--data.fps", "own", "--data.frames-from", "all"})
          .train->data;
  EXPECT_TRUE(own.own_fps && !own.fps);
  EXPECT_EQ(own.frames_from, FramesFrom::all);
  EXPECT_EQ(train.data.frames_from, FramesFrom::middle);
  EXPECT_EQ(train.data.crop, Crop::random);
  EXPECT_EQ(train.data.flip, 0.25);
  EXPECT_FALSE(train.data.shuffle);
  EXPECT_TRUE(train.data.strict);
  EXPECT_EQ(train.data.cache, "samples");
  EXPECT_EQ(train.steps, 1000);
  EXPECT_EQ(train.batch, 4);
  EXPECT_EQ(train.seed, 18446744073709551615U);
  EXPECT_EQ(train.learning_rate, 2e-5);
  EXPECT_EQ(train.schedule, &ops::rate_schedule_named("cosine"));
  EXPECT_EQ(train.warmup, 10);
  EXPECT_EQ(train.optimizer, &ops::optimizer_named("sgd"));
  EXPECT_EQ(train.optimizer_settings.beta1, 0.8);
  EXPECT_EQ(train.optimizer_settings.beta2, 0.999);
  EXPECT_EQ(train.optimizer_settings.weight_decay, 0);
  EXPECT_EQ(train.optimizer_settings.epsilon, 1e-6);
  EXPECT_EQ(train.optimizer_settings.momentum, 0.7);
  EXPECT_EQ(train.clip, std::nullopt);
  EXPECT_EQ(train.caption_dropout, 0.1);
  EXPECT_EQ(train.image_dropout, 0.2);
  EXPECT_EQ(train.flow_shift, 7.5);
  EXPECT_FALSE(train.samples_posterior);
  EXPECT_EQ(train.save_every, 50);
  EXPECT_FALSE(train.reproducible);
  EXPECT_EQ(train.sample_every, 7);
  EXPECT_EQ(train.sample_steps, 12);
  EXPECT_EQ(train.sample_guidance, 1.5);
  ASSERT_EQ(job.clips.size(), 2U);
  EXPECT_EQ(job.clips[1].prompt, "a fox");
  EXPECT_EQ(with_data({}).restart.every_seconds, 300);  // of clips 600
  EXPECT_EQ(with_data({"--restart.every", "7min"}).restart.every_seconds, 420);
  EXPECT_EQ(with_data({"--train.sample-every", "off"}).train->sample_every, 0);
  EXPECT_EQ(train.lora.rank, 8);
  EXPECT_EQ(train.lora.alpha, 4.5);
  EXPECT_EQ(train.lora.dropout, 0.05);
  EXPECT_EQ(train.lora.targets, (std::vector<std::string>{"to_k", "ff.net.0.proj"}));
  EXPECT_EQ(pattern_text(train.lora.rank_pattern), "transformer_blocks.0.attn1.to_k=4096,to_k=1");
  EXPECT_EQ(pattern_text(train.lora.alpha_pattern), "ff.net.0.proj=0.25");
  EXPECT_EQ(with_data({"--train.schedule", "linear"}).train->schedule,
            &ops::rate_schedule_named("linear"));
  const auto& options = job.options;
  EXPECT_NE(std::ranges::find(options, std::pair<std::string, std::string>("train.batch", "4")),
            options.end());
  EXPECT_NE(std::ranges::find(options, std::pair<std::string, std::string>("train.clip", "none")),
            options.end());
  EXPECT_TRUE(std::ranges::none_of(
      options, [](const auto& option) { return option.first.starts_with("sample."); }));
}

TEST_F(TrainOptions, RefusesWithOneMessage) {
  const std::vector<Wrong> table{
      {{"--train.stepz", "5"}, "64: unknown option --train.stepz; did you mean --train.steps?"},
      {{"--steps", "5"}, "64: unknown option --steps; did you mean --train.steps?"},
      {{"--sample.steps", "5"},
       "64: unknown option --sample.steps; it is an option of reelmesh run"},
      {{"--prompt.text", "cat"},
       "64: unknown option --prompt.text; it is an option of reelmesh run"},
      {{"--learning_rate", "1"},
       "64: unknown option --learning_rate; did you mean --train.learning-rate?"},
      {{"--train.lr", "1"}, "64: unknown option --train.lr; did you mean --train.learning-rate?"},
      {{"--num_frames", "9"}, "64: unknown option --num_frames; did you mean --data.frames?"},
      {{"--rank", "4"}, "64: unknown option --rank; did you mean --lora.rank?"},
      {{"--train.optimiser", "sgd"},
       "64: unknown option --train.optimiser; did you mean --train.optimizer?"},
      {{"--train.ema", "1"}, "64: --train.ema: found '1', expected a number from 0 to 0.999999"},
      {{"--data.bucket", "1x8x8"},
       "64: unknown option --data.bucket; did you mean --data.buckets?"},
      {{"--from", "job.h5"}, "64: unknown option --from"},
      {{"--parallel.tune", "yes"},
       "64: unknown option --parallel.tune; it is an option of reelmesh run"},
      {{"stray"}, "64: unexpected argument 'stray', expected options such as --train.steps 1000"},
      {{"--train.method", "all"}, "64: --train.method: found 'all', expected one of lora, full"},
      {{"--train.steps=0"}, "64: --train.steps: given twice"},
      {{"--train.batch", "0"},
       "64: --train.batch: found '0', expected a whole number from 1 to 65536"},
      {{"--train.seed", "-1"}, "64: --train.seed: found '-1', expected a whole number from 0 to"},
      {{"--train.learning-rate", "-1e-4"},
       "64: --train.learning-rate: found '-1e-4', expected a number from 0 to 100"},
      {{"--train.learning-rate", "nan"}, "64: --train.learning-rate: found 'nan', expected"},
      {{"--train.schedule", "step"},
       "64: --train.schedule: found 'step', expected one of constant, linear, cosine"},
      {{"--train.warmup", "-1"}, "64: --train.warmup: found '-1', expected a whole number from 0"},
      {{"--train.optimizer", "adam"},
       "64: --train.optimizer: found 'adam', expected one of adamw, lion, sgd"},
      {{"--train.beta1", "1"},
       "64: --train.beta1: found '1', expected a number from 0 to 0.999999"},
      {{"--train.beta2", "-0.1"}, "64: --train.beta2: found '-0.1', expected a number from 0 to"},
      {{"--train.weight-decay", "101"}, "64: --train.weight-decay: found '101', expected a number"},
      {{"--train.epsilon", "0"}, "64: --train.epsilon: found '0', expected a number from 1e-30"},
      {{"--train.clip", "0"}, "64: --train.clip: found '0', expected a number from 1e-06 to"},
      {{"--train.caption-dropout", "1.5"},
       "64: --train.caption-dropout: found '1.5', expected a number from 0 to 1"},
      {{"--lora.dropout", "1"}, "64: --lora.dropout: found '1', expected a number from 0 to 0.99"},
      {{"--lora_dropout", "0.1"},
       "64: unknown option --lora_dropout; did you mean --lora.dropout?"},
      {{"--train.image-dropout", "-0.1"},
       "64: --train.image-dropout: found '-0.1', expected a number from 0 to 1"},
      {{"--train.flow-shift", "0"},
       "64: --train.flow-shift: found '0', expected a number above 0, at most 1000"},
      {{"--train.posterior", "mean"},
       "64: --train.posterior: found 'mean', expected one of sample, mode"},
      {{"--train.save-every", "x"}, "64: --train.save-every: found 'x', expected a whole number"},
      {{"--train.sample-every", "0"},
       "64: --train.sample-every: found '0', expected a whole number from 1"},
      {{"--train.sample-steps", "0"},
       "64: --train.sample-steps: found '0', expected a whole number from 1"},
      {{"--train.sample-guidance", "x"},
       "64: --train.sample-guidance: found 'x', expected a number"},
      {{"--train.sample-prompts", "none.txt"}, "66: train.sample-prompts: "},
      {{"--train.sample-prompts", "none.csv"},
       "64: train.sample-prompts: found 'none.csv', expected a .txt, .jsonl or .json file"},
      {{"--train.reproducible", "1"}, "64: --train.reproducible: found '1', expected yes or no"},
      {{"--data.height", "7"},
       "64: --data.height: found '7', expected a whole number from 8 to 16384"},
      {{"--data.frames", "10001"},
       "64: --data.frames: found '10001', expected a whole number from 1 to 10000"},
      {{"--data.buckets", "9x64"},
       "64: --data.buckets: found '9x64', expected FRAMESxHEIGHTxWIDTH, such as 49x480x720"},
      {{"--data.buckets", "9x64x64,"},
       "64: --data.buckets: found '', expected FRAMESxHEIGHTxWIDTH"},
      {{"--data.buckets", "9x7x64"},
       "64: --data.buckets: height: found '7', expected a whole number from 8 to 16384"},
      {{"--data.buckets", "9x64x64,9x64x64"},
       "64: --data.buckets: found 9x64x64 twice in '9x64x64,9x64x64', expected each size once"},
      {{"--data.fps", "0"}, "64: --data.fps: found '0', expected a number from 0.01 to 1000"},
      {{"--data.fps", "each"}, "64: --data.fps: found 'each', expected a number from 0.01 to 1000"},
      {{"--data.flip", "2"}, "64: --data.flip: found '2', expected a number from 0 to 1"},
      {{"--data.path", "clips:0"},
       "64: --data.path: found '0', expected a number from 0.001 to 10000"},
      {{"--data.cache", ""}, "64: --data.cache: found an empty value, expected a path"},
      {{"--lora.rank", "4097"},
       "64: --lora.rank: found '4097', expected a whole number from 1 to 4096"},
      {{"--lora.alpha", "0"}, "64: --lora.alpha: found '0', expected a number from 1e-06"},
      {{"--lora.targets", "to_q,norm1"},
       "64: --lora.targets: found 'norm1', expected one of to_q, to_k, to_v, to_out.0, "
       "ff.net.0.proj, ff.net.2, ffn.net.0.proj, ffn.net.2, add_k_proj, add_v_proj, qkv, proj, "
       "q_linear, kv_linear, fc1, fc2"},
      {{"--lora.targets", ""}, "64: --lora.targets: found '', expected one of to_q"},
      {{"--lora.targets", "to_q,to_q"},
       "64: --lora.targets: found to_q twice in 'to_q,to_q', expected each layer once"},
      {{"--lora.rank-pattern", "to_q"},
       "64: --lora.rank-pattern: found 'to_q', expected KEY=N, where KEY is the name of a layer"},
      {{"--lora.rank-pattern", "to_q=4,"}, "64: --lora.rank-pattern: found '', expected KEY=N"},
      {{"--lora.rank-pattern", "=4"}, "64: --lora.rank-pattern: found '=4', expected KEY=N"},
      {{"--lora.rank-pattern", "to_[qk]=4"},
       "64: --lora.rank-pattern: found 'to_[qk]=4', expected KEY=N"},
      {{"--lora.rank-pattern", "to_q=4,to_k=0"},
       "64: --lora.rank-pattern: found '0', expected a whole number from 1 to 4096"},
      {{"--lora.rank-pattern", "to_q=4,to_q=5"},
       "64: --lora.rank-pattern: found to_q twice in 'to_q=4,to_q=5', expected each key once"},
      {{"--lora.alpha-pattern", "to_q=x"},
       "64: --lora.alpha-pattern: found 'x', expected a number from 1e-06"},
      {{"--numerics.dtype", "float16", "--device.backend", "cuda"},
       "64: --numerics.dtype: found float16, expected float32 or bfloat16"},
  };
  for (const Wrong& wrong : table) {
    const std::string error = error_of([&] { with_data(wrong.words); });
    EXPECT_THAT(error, StartsWith(wrong.error));
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  write("train.cfg", "[sample]\nsteps = 5\n");
  EXPECT_THAT(
      error_of([] {
        with_data({"--config", "train.cfg"});
      }),
      StartsWith("64: train.cfg:1: unknown section [sample]; it is a section of reelmesh run"));
}

TEST_F(TrainOptions, NeedsModelStepsOutputAndData) {
  std::vector<std::string> words;
  const auto error = [&] { return error_of([&] { parse_training(words); }); };
  EXPECT_EQ(error(), "64: model.path is missing, expected the folder of a checkpoint");
  words = {"--model.path", "m"};
  EXPECT_EQ(error(), "64: train.steps is missing, expected the number of steps");
  words.insert(words.end(), {"--train.steps", "5"});
  EXPECT_EQ(error(), "64: output.path is missing, expected a folder for the results");
  words.insert(words.end(), {"--output.path", "o"});
  EXPECT_EQ(error(),
            "64: data.path is missing, expected the clips to learn from: a .jsonl or .csv file, or "
            "a folder");
  words.insert(words.end(), {"--data.path", "d"});
  EXPECT_EQ(error(), "");
}

TEST_F(TrainOptions, OfDataMayHaveSeveralPathsWithRepetitions) {
  write("clips:7", "");
  const DataSettings data =
      parse_training({"--model.path", "m", "--output.path", "o", "--train.steps", "5",
                      "--data.path", "a:b:3", "--data.path", "clips:7", "--data.path", "list.csv",
                      "--data.validation", "held:2"})
          .train->data;
  ASSERT_EQ(data.paths.size(), 3U);
  EXPECT_EQ(data.paths[0].path, "a:b");
  EXPECT_EQ(data.paths[0].repeat, 3);
  EXPECT_EQ(data.paths[1].path, "clips:7");  // there is such a file
  EXPECT_EQ(data.paths[1].repeat, 1);
  EXPECT_EQ(data.paths[2].path, "list.csv");
  ASSERT_EQ(data.validation.size(), 1U);
  EXPECT_EQ(data.validation[0].repeat, 2);
}

TEST_F(TrainOptions, AreNotThoseOfRun) {
  const auto error = [](const std::string& option) {
    return error_of([&] {
      call([](int argc, const char* const* argv) { return parse_run(argc, argv); },
           {"--model.path", "m", "--output.path", "o", "--prompt.text", "cat", option, "4"});
    });
  };
  EXPECT_THAT(error("--train.steps"),
              StartsWith("64: unknown option --train.steps; it is an option of reelmesh train"));
  EXPECT_THAT(error("--lora.rank"),
              StartsWith("64: unknown option --lora.rank; it is an option of reelmesh train"));
  EXPECT_THAT(format_page(run_help(), {}), Not(HasSubstr("--train.")));
}

TEST_F(TrainOptions, OfAPlanMakeItOneOfATraining) {
  const PlanOptions clips = plan({});
  EXPECT_FALSE(clips.job.train);
  EXPECT_EQ(clips.job.clips.size(), 1U);
  const PlanOptions training = plan({"--train.steps", "5", "--data.height", "64"});
  ASSERT_TRUE(training.job.train);
  EXPECT_EQ(training.job.train->steps, 5);
  EXPECT_EQ(training.job.train->data.height, 64);
  EXPECT_EQ(training.job.train->lora.rank, 64);
  EXPECT_TRUE(training.job.clips.empty());
  EXPECT_EQ(error_of([] {
              plan({"--lora.rank", "5"});
            }),
            "64: train.steps is missing, expected the number of steps");
  EXPECT_EQ(error_of([] {
              plan({"--train.steps", "5", "--prompt.text", "cat"});
            }),
            "64: --prompt.text and --train.steps are given, expected options of clips to make or "
            "of a training");
  write("train.cfg", "[train]\nsteps = 9\n");
  EXPECT_EQ(plan({"--config", "train.cfg"}).job.train->steps, 9);
  EXPECT_EQ(error_of([] {
              plan({"--config", "train.cfg", "--sample.steps", "2"});
            }),
            "64: --sample.steps and train.cfg:2: train.steps are given, expected options of clips "
            "to make or of a training");
}

TEST_F(TrainOptions, HelpNamesEveryKeyAndItsDefault) {
  const std::string help = format_page(train_help(), {});
  for (const Option& key : reelmesh::options()) {
    const std::string name = std::string("\n  --") + key.name + " " + key.value;
    const std::size_t begin = help.find(name);
    EXPECT_EQ(begin != help.npos, key.is_of(JobKind::training)) << name;
    if (begin == help.npos || key.fallback == nullptr) continue;
    const std::string own = help.substr(begin, help.find("\n  --", begin + 1) - begin);
    EXPECT_THAT(own, HasSubstr("[default:")) << name;
  }
  for (const char* section : {"[model]", "[data]", "[train]", "[lora]", "[output]", "[restart]",
                              "[parallel]", "[device]", "[numerics]", "[trace]"}) {
    EXPECT_THAT(help, HasSubstr(section));
  }
}

}  // namespace
}  // namespace reelmesh::app
