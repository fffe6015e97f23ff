// Settings and options are described once: what follows from the descriptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "job/clip.hpp"
#include "job/options.hpp"
#include "job/requests.hpp"
#include "store/check.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

using testing::HasSubstr;

// Two permitted values of a setting.
template <class Number>
requires std::is_arithmetic_v<Number> std::pair<Number, Number> two_values(
    const ClipSetting<Number>& setting) {
  const Number max = setting.permitted.max;
  return {max, static_cast<Number>(max / 2)};
}
std::pair<StepCache, StepCache> two_values(const ClipSetting<StepCache>&) {
  return {*StepCache::read("teacache:0.1"), *StepCache::read("every:3,from:0.5,to:80")};
}
std::pair<NoiseLevels, NoiseLevels> two_values(const ClipSetting<NoiseLevels>&) {
  return {NoiseLevels({1, 0.75, 0.5, 0.25}), NoiseLevels({0.1, 1e-300})};
}
std::pair<CacheCoefficients, CacheCoefficients> two_values(const ClipSetting<CacheCoefficients>&) {
  return {CacheCoefficients({1, 2, 3, 4, 5}),
          CacheCoefficients({-1538.80483, 1e-300, 0.1, -0.0523162339, 2})};
}

Clip clip_with(const ClipSettings& settings) {
  Clip clip;
  clip.record.settings = settings;
  return clip;
}

TEST(ClipSettings, AreOptionsFieldsAndAttributes) {
  std::set<std::string> names, attributes;
  for (const Option& option : options()) names.insert(option.name);
  ClipRecord record;
  for_each_clip_setting(
      [&](const auto& setting) { record.settings.*setting.value = two_values(setting).first; });
  record.for_each_attribute(
      [&](const char* name, const auto&, Compared) { attributes.insert(name); });
  for_each_clip_setting([&](const auto& setting) {
    EXPECT_TRUE(names.contains(setting.option)) << setting.option;
    EXPECT_THAT(optional_fields(), HasSubstr(setting.name()));
    EXPECT_EQ(attributes.contains(setting.name()), setting.shown_as == ShownAs::attribute)
        << setting.name();
  });
}

TEST(ClipSettings, AreReadAsTheyWereWritten) {
  ClipRequest request;
  request.prompt = "a \"cat\"";
  request.negative_prompt = "dog";
  request.token_ids = {1, 2};
  request.image = "cat.png";
  request.last_image = "dog.png";
  request.input_hash = "0123";
  request.last_image_hash = "4567";
  for_each_clip_setting(
      [&](const auto& setting) { request.settings.*setting.value = two_values(setting).second; });
  const ClipRequest read = parse_request(request_line(request), "", "line");
  EXPECT_EQ(read.settings, request.settings);
  EXPECT_EQ(read.prompt, request.prompt);
  EXPECT_EQ(read.negative_prompt, request.negative_prompt);
  EXPECT_EQ(read.token_ids, request.token_ids);
  EXPECT_EQ(read.image, request.image);
  EXPECT_EQ(read.last_image, request.last_image);
  EXPECT_EQ(read.input_hash, request.input_hash);
  EXPECT_EQ(read.last_image_hash, request.last_image_hash);
  EXPECT_EQ(request_line(read), request_line(request));

  ClipRequest bare;
  bare.prompt = "cat";
  bare.clean = false;
  EXPECT_EQ(request_line(bare), R"({"clean":false,"negative_prompt":"","prompt":"cat"})");
}

TEST(ClipSettings, HaveTheLimitsOfTheirDescription) {
  for_each_clip_setting([&](const auto& setting) {
    const auto line = [&](const std::string& value) {
      return fmt::format(R"({{"prompt": "cat", "{}": {}}})", setting.name(), value);
    };
    const auto refused = [&](const std::string& value, const std::string& expected) {
      test::expect_error(
          Status::usage, [&] { (void)parse_request(line(value), "", "p.jsonl:3"); },
          fmt::format("p.jsonl:3: {}: found ", setting.name()), expected);
    };
    using Value = typename std::decay_t<decltype(setting)>::Value;
    if constexpr (std::is_arithmetic_v<Value>) {
      const Permitted<Value>& limits = setting.permitted;
      EXPECT_EQ(parse_request(line(fmt::format("{}", limits.max)), "", "").settings.*setting.value,
                limits.max);
      refused("-1", "'-1', expected a ");
      refused("1e+30", "'1e+30', expected a ");
      if (limits.lower_limit == Limit::excluded) {
        refused(fmt::format("{}", limits.min), "expected a ");
      }
    } else {
      refused("1", "1, expected a text");
      refused(R"("often")", fmt::format("'often', expected {}", Value::expected));
    }
  });
}

// Each setting that differs makes another clip: another line of /requests, and another record if
// the file shows it as an attribute.
TEST(ClipSettings, ThatDifferMakeAnotherClip) {
  for_each_clip_setting([&](const auto& setting) {
    ClipRequest one, other;
    const auto [a, b] = two_values(setting);
    one.settings.*setting.value = a;
    other.settings.*setting.value = b;
    EXPECT_NE(request_line(one), request_line(other)) << setting.name();
    ClipRecord made, asked;
    made.settings = one.settings;
    asked.settings = other.settings;
    EXPECT_EQ(hdf5::compared_texts(made) != hdf5::compared_texts(asked),
              setting.shown_as == ShownAs::attribute)
        << setting.name();
    ClipKinds kinds;
    kinds.add(clip_with(one.settings));
    kinds.add(clip_with(other.settings));
    EXPECT_EQ(kinds.size(), setting.in_batch == InBatch::equal ? 2 : 1) << setting.name();
    forget(one, setting.option);
    EXPECT_EQ(one.settings, ClipSettings()) << setting.name();
  });
}

// A new option or setting fails here until somebody has decided what depends on it.
TEST(Options, AreClassified) {
  std::map<Effect, std::set<std::string>> found;
  using Names = std::set<std::string>;
  Names of_rate;
  for (const Option& option : options()) {
    found[option.effect].insert(option.name);
    if (option.of_rate) of_rate.insert(option.name);
  }
  EXPECT_EQ(of_rate, (Names{"train.steps", "train.learning-rate", "train.schedule", "train.warmup",
                            "train.min-rate", "train.cycles", "train.power"}));
  EXPECT_EQ(
      found[Effect::model],
      (Names{"model.path", "model.transformer", "model.transformer-2", "model.vae",
             "model.text-encoder", "model.tokenizer", "model.scheduler", "model.image-encoder",
             "model.image-processor", "model.lora", "model.lora-2", "model.variant"}));
  EXPECT_EQ(found[Effect::clips], (Names{"prompt.text",
                                         "prompt.file",
                                         "prompt.image",
                                         "prompt.last-image",
                                         "prompt.video",
                                         "prompt.negative",
                                         "prompt.clean",
                                         "prompt.repeat",
                                         "sample.height",
                                         "sample.width",
                                         "sample.frames",
                                         "sample.fps",
                                         "sample.steps",
                                         "sample.guidance",
                                         "sample.guidance-2",
                                         "sample.cache",
                                         "sample.cache-coefficients",
                                         "sample.strength",
                                         "sample.flow-shift",
                                         "sample.noise-levels",
                                         "sample.seed",
                                         "data.path",
                                         "data.video-field",
                                         "data.caption-field",
                                         "data.caption-prefix",
                                         "data.no-caption",
                                         "data.subfolders"}));
  EXPECT_EQ(found[Effect::device], (Names{"device.backend"}));
  EXPECT_EQ(found[Effect::attribute], (Names{"sample.scheduler", "numerics.dtype"}));
  EXPECT_EQ(found[Effect::fingerprint], (Names{"sample.dynamic-guidance",
                                               "numerics.tf32",
                                               "numerics.reproducible",
                                               "numerics.attention",
                                               "numerics.products",
                                               "data.height",
                                               "data.width",
                                               "data.frames",
                                               "data.buckets",
                                               "data.fps",
                                               "data.frames-from",
                                               "data.crop",
                                               "data.flip",
                                               "data.shuffle",
                                               "train.method",
                                               "train.steps",
                                               "train.batch",
                                               "train.seed",
                                               "train.learning-rate",
                                               "train.schedule",
                                               "train.warmup",
                                               "train.min-rate",
                                               "train.cycles",
                                               "train.power",
                                               "train.optimizer",
                                               "train.beta1",
                                               "train.beta2",
                                               "train.weight-decay",
                                               "train.epsilon",
                                               "train.momentum",
                                               "train.clip",
                                               "train.ema",
                                               "train.caption-dropout",
                                               "train.image-dropout",
                                               "train.flow-shift",
                                               "train.timesteps",
                                               "train.logit-mean",
                                               "train.logit-std",
                                               "train.min-snr",
                                               "train.posterior",
                                               "train.reproducible",
                                               "lora.init",
                                               "lora.fold-alpha",
                                               "lora.rank",
                                               "lora.alpha",
                                               "lora.rank-pattern",
                                               "lora.alpha-pattern",
                                               "lora.dropout",
                                               "lora.targets"}));
  for (const std::string& name : found[Effect::no_bits]) {
    const std::string section = name.substr(0, name.find('.'));
    EXPECT_TRUE((Names{"output", "restart", "parallel", "device", "trace"}).contains(section) ||
                (Names{"model.lora-strict", "model.unread", "model.copy-to", "sample.stop-after",
                       "sample.batch", "data.strict", "data.cache", "data.validation",
                       "train.save-every", "train.keep", "train.recompute", "train.new-rate",
                       "train.validate-every", "train.sample-every", "train.sample-prompts",
                       "train.sample-steps", "train.sample-guidance"})
                    .contains(name))
        << name;
  }
  for (const Option& option : options()) {
    EXPECT_EQ(option.in_effect != nullptr, option.effect == Effect::fingerprint) << option.name;
  }
}

TEST(Options, BelongToClipsOrTraining) {
  using Names = std::set<std::string>;
  for (const Option& option : options()) {
    const std::string name = option.name, section = name.substr(0, name.find('.'));
    const bool clips = section == "prompt" || section == "sample" ||
                       (Names{"output.video", "output.latents", "output.embeddings",
                              "output.strict", "parallel.tune"})
                           .contains(name);
    const bool training = section == "data" || section == "train" || section == "lora";
    EXPECT_EQ(option.is_of(JobKind::clips), !training) << name;
    EXPECT_EQ(option.is_of(JobKind::training), !clips) << name;
    EXPECT_TRUE(option.is_of(JobKind::any)) << name;
  }
}

TEST(Fingerprint, OfATrainingHasItsSettings) {
  Job job;
  job.train.emplace().steps = 100;
  EXPECT_EQ(fingerprint("12ab", job, {}),
            "model 12ab, backend cpu, dtype float32, data.shuffle yes, train.method lora, "
            "train.batch 1, train.seed 42, train.learning-rate 0.0001, train.schedule constant, "
            "train.warmup 0, train.optimizer adamw, train.beta1 0.9, train.beta2 0.95, "
            "train.weight-decay 0.0001, train.epsilon 1e-08, train.clip 1, "
            "train.caption-dropout 0, train.posterior sample, train.reproducible yes, "
            "lora.rank 64, lora.alpha 64, lora.targets to_q+to_k+to_v+to_out.0, tf32 no, "
            "reproducible yes, attention auto");
  TrainSettings& train = *job.train;
  train.schedule = &ops::rate_schedule_named("cosine");
  train.optimizer = &ops::optimizer_named("sgd");
  train.clip.reset();
  train.samples_posterior = false;
  train.flow_shift = 2.5;
  train.image_dropout = 0.25;  // the default is of all models, also of those without images
  train.data.height = 480;
  train.data.own_fps = true;
  train.data.frames_from = FramesFrom::random;
  train.data.crop = Crop::random;
  train.data.flip = 0.5;
  train.data.buckets = {{480, 720, 49}, {64, 32, 1}};
  train.lora.alpha = 1.5;
  train.lora.rank_pattern = {{"transformer_blocks.0.ff.net.2", 128}, {"ff.net.2", 8}};
  train.lora.alpha_pattern = {{"net.2", 0.5}};
  train.lora.dropout = 0.125;
  train.lora.targets = {"ff.net.2"};
  job.dtype = DType::bfloat16;
  EXPECT_EQ(fingerprint("12ab", job, {}),
            "model 12ab, backend cpu, dtype bfloat16, data.height 480, "
            "data.buckets 49x480x720+1x64x32, data.fps own, data.frames-from random, data.crop "
            "random, data.flip 0.5, data.shuffle yes, train.method lora, "
            "train.steps 100, train.batch 1, train.seed 42, "
            "train.learning-rate 0.0001, train.schedule cosine, train.warmup 0, "
            "train.optimizer sgd, train.momentum 0, train.clip none, train.caption-dropout 0, "
            "train.image-dropout 0.25, train.flow-shift 2.5, train.posterior mode, "
            "train.reproducible yes, lora.rank 64, lora.alpha 1.5, lora.rank-pattern "
            "transformer_blocks.0.ff.net.2=128+ff.net.2=8, "
            "lora.alpha-pattern net.2=0.5, lora.dropout 0.125, lora.targets ff.net.2, tf32 no, "
            "reproducible yes, "
            "attention auto");
  train.method = &train_method_named("full");  // settings of LoRAs do not matter
  train.ema = 0.5;
  EXPECT_THAT(
      fingerprint("12ab", job, {}),
      testing::AllOf(testing::HasSubstr("train.method full"), testing::HasSubstr("train.ema 0.5"),
                     testing::Not(testing::HasSubstr("lora"))));
}

TEST(Fingerprint, OfEncodedSamplesNamesHowTheyAreComputed) {
  Job job;
  job.train.emplace().seed = 7;
  EXPECT_EQ(encoders_fingerprint("12ab", job, {}),
            "model 12ab, backend cpu, dtype float32, tf32 no, reproducible yes, attention auto");
  job.dtype = DType::bfloat16;
  job.numerics = {.tf32 = true, .reproducible = false, .own_attention = true};
  EXPECT_EQ(encoders_fingerprint("12ab", job, {.on_gpu = true}),
            "model 12ab, backend cuda, dtype bfloat16, tf32 yes, reproducible no, attention own");
  EXPECT_EQ(encoders_fingerprint("12ab", job, {.products = "bfloat16 (AMX)"}),
            "model 12ab, backend cpu, dtype bfloat16, tf32 no, reproducible yes, attention auto, "
            "products bfloat16 (AMX)");
}

TEST(Fingerprint, NamesWhatChangesBits) {
  Job job;
  EXPECT_EQ(fingerprint("12ab", job, {}),
            "model 12ab, backend cpu, dynamic-guidance no, tf32 no, reproducible yes, attention "
            "auto");
  job.numerics.tf32 = true;  // CPUs do not use it
  job.dynamic_guidance = true;
  job.parallel.ulysses = 3;
  EXPECT_EQ(fingerprint("12ab", job, {}),
            "model 12ab, backend cpu, dynamic-guidance yes, tf32 no, reproducible yes, attention "
            "auto");
  EXPECT_EQ(fingerprint("12ab", job, {.on_gpu = true}),
            "model 12ab, backend cuda, dynamic-guidance yes, tf32 yes, reproducible yes, attention "
            "auto");
  EXPECT_THAT(fingerprint("12ab", job, {.products = "bfloat16 (AMX)"}),
              testing::EndsWith(", attention auto, products bfloat16 (AMX)"));
}

}  // namespace
}  // namespace reelmesh
