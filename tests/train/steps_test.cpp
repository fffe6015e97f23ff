// Steps of training: ten are those of PyTorch, twenty have the same bits on every layout.
#include "train/steps.hpp"

#include <map>
#include <set>

#include "comm/together.hpp"
#include "models/opensora/reference.hpp"
#include "models/wan/reference.hpp"
#include "support/groups.hpp"
#include "support/long.hpp"
#include "support/ranks.hpp"
#include "support/temp_folder.hpp"
#include "train/reference.hpp"
#include "train/wan_case.hpp"

namespace reelmesh::train {
namespace {

using test::StoredRun;
using test::TrainingReference;

// What PyTorch's run of some steps was made of, and gave.
struct StepsReference {
  StoredRun run;
  ModelPaths model;
  VideoSize size;
  std::optional<double> fps;
  // Of each sample, then of the empty caption if there is one: prompt and embedding [token,
  // channel].
  std::vector<std::string> prompts;
  std::vector<Tensor> texts;
  std::optional<Lora> lora;  // unless all parameters are trained
  std::filesystem::path lora_path;
  std::vector<std::string> lora_targets = {};
  std::int64_t kept = 256;      // elements of each change
  bool divides_frames = false;  // or rows, without rings

  bool all_weights() const { return !lora; }
  Tensor get(const std::string& tensor) const { return run.get(tensor); }
  const nlohmann::json& facts() const { return run.facts; }
  VideoSize narrower() const { return {size.height, size.width - 16, size.frames}; }
};

StepsReference of_cogvideox(const std::string& part, const std::string& name) {
  TrainingReference found(part, name);
  const Shape latents = found.get("latent_mean").shape();  // [sample, frame, channel, row, column]
  const CogVideoXConfig& config = found.reference.transformer;
  std::vector<std::string> prompts;
  std::vector<Tensor> embeddings;
  const Tensor texts = found.reference.get("text.embeddings");
  std::vector<std::int64_t> rows = found.facts.at("texts").get<std::vector<std::int64_t>>();
  rows.push_back(found.facts.at("empty_text").get<std::int64_t>());
  for (const std::int64_t row : rows) {
    prompts.push_back(fmt::format("prompt {}", row));
    embeddings.push_back(texts.rows(row, 1).reshape({texts.shape(1), texts.shape(2)}));
  }
  std::filesystem::path lora;
  std::vector<std::string> targets;
  if (found.lora) {
    lora = found.folder / found.facts.at("lora").get<std::string>();
    targets = found.targets();
  }
  const VideoSize size{latents[3] * 8, latents[4] * 8,
                       (latents[1] - 1) * config.temporal_compression + 1};
  const ModelPaths model{.root = found.reference.folder};
  std::optional<Lora> start = std::move(found.lora);
  return {.run = std::move(found),
          .model = model,
          .size = size,
          .prompts = std::move(prompts),
          .texts = std::move(embeddings),
          .lora = std::move(start),
          .lora_path = lora,
          .lora_targets = std::move(targets)};
}

StepsReference of_open_sora(const std::string& name) {
  StepsReference reference{
      .run = StoredRun(test::data_folder() / "opensora" / "training", "steps", name),
      .kept = 128,
      .divides_frames = true};
  const nlohmann::json& facts = reference.facts();
  const test::OpenSoraReference model(reference.run.kind());
  reference.model.root = model.folder;
  reference.size = {facts.at("height").get<std::int64_t>(), facts.at("width").get<std::int64_t>(),
                    facts.at("frames").get<std::int64_t>()};
  reference.fps = facts.at("fps").get<double>();
  for (const std::int64_t row : facts.at("texts").get<std::vector<std::int64_t>>()) {
    reference.prompts.push_back(model.facts.at("texts").at(std::size_t(row)).get<std::string>());
    reference.texts.push_back(model.text(row));
  }
  return reference;
}

StepsReference of_wan(const std::string& name) {
  const auto [folder, run] = test::wan_run(name);
  StepsReference reference{.run = StoredRun(folder, "steps", run), .kept = 128};
  const test::WanReference model(reference.run.kind());
  reference.model.root = model.folder;
  if (model.transformer.takes_image()) {  // it has the other parts of that for texts
    const std::filesystem::path others = test::data_folder() / "wan" / "float32";
    reference.model.vae = others / "vae";
    reference.model.text_encoder = others / "text_encoder";
    reference.model.tokenizer = others / "tokenizer";
    reference.model.scheduler = others / "scheduler";
  }
  const Shape latents = reference.get("latent_mean").shape();  // [sample, frame, channel, row, …]
  reference.size = {latents[3] * WanVaeConfig().pixels_per_latent(),
                    latents[4] * WanVaeConfig().pixels_per_latent(),
                    WanVaeConfig::decoded_frames(latents[1])};
  for (std::int64_t i = 0; i <= latents[0]; ++i) {  // the last one is the empty caption
    reference.prompts.push_back(fmt::format("prompt {}", i));
    const Tensor text = reference.get(fmt::format("text.{}", i));
    Tensor& rows = reference.texts.emplace_back(
        Tensor::zeros({WanConfig::text_tokens, text.shape(1)}, DType::float32));
    rows.rows(0, text.shape(0)).copy_from(text);
  }
  if (reference.facts().contains("lora")) {
    reference.lora_path = reference.run.folder / reference.facts().at("lora").get<std::string>();
    reference.lora = Lora::open(reference.lora_path);
    reference.lora_targets = test::targets_of(*reference.lora);
  }
  return reference;
}

// How the ranks train.
struct Way {
  const char* name;
  std::optional<int> replicas, ulysses, ring;
  std::optional<WeightsChoice> weights;
  DType dtype = DType::float32;
  bool reproducible = true;
  std::optional<std::int64_t> steps;  // in place of those of the reference
  std::optional<double> ema = {};
  bool constant_rate = false;
  std::int64_t validate_every = 0;  // 0: before the first and after the last step
  bool validate_before = true;      // the first step
  bool own_validation = false;      // the last two of the samples only validate
  Shard shard = Shard::automatic;
  bool buckets = false;  // the second sample has fewer columns
  std::optional<double> image_dropout = {};
  std::optional<double> fps = {};
  std::vector<double> own_rates = {};  // of the samples' videos, with data.fps = own
  std::optional<double> lora_dropout = {};
  float brighter = 0;  // is added to the first frames, from which images are made
};

struct Trained {
  std::vector<StepResult> steps;
  std::vector<ValidationResult> validations;
  std::vector<std::string> names;  // of the matrices
  std::vector<Tensor> values;
  std::vector<Tensor> changes;  // of parameters; none of a LoRA
};

// The job of a case, with its samples in a cache.
class Training {
 public:
  Training(const StepsReference& reference, const comm::Group& ranks)
      : reference_(reference), ranks_(ranks) {
    folder_ = comm_folder();
    job_.model = reference.model;
    job_.model.complete();
    job_.output = folder_ / "out";
    TrainSettings& train = job_.train.emplace();
    const nlohmann::json& facts = reference.facts();
    latents_ = reference.get("latent_mean").shape();  // [sample, frame, channel, row, column]
    train.data.height = reference.size.height;
    train.data.width = reference.size.width;
    train.data.frames = reference.size.frames;
    train.data.fps = reference.fps;
    train.steps = facts.at("steps").get<std::int64_t>();
    train.batch = facts.at("batch").get<std::int64_t>();
    train.seed = facts.at("seed").get<std::uint64_t>();
    train.learning_rate = facts.at("learning_rate").get<double>();
    train.schedule = &ops::rate_schedule_named(facts.at("schedule").get<std::string>());
    train.warmup = facts.at("warmup").get<std::int64_t>();
    train.optimizer_settings.beta1 = facts.at("beta1").get<double>();
    train.optimizer_settings.beta2 = facts.at("beta2").get<double>();
    train.optimizer_settings.weight_decay = facts.at("weight_decay").get<double>();
    train.optimizer_settings.epsilon = facts.at("epsilon").get<double>();
    train.clip = facts.at("clip").get<double>();
    train.caption_dropout = facts.at("caption_dropout").get<double>();
    if (facts.contains("image_dropout")) {
      train.image_dropout = facts.at("image_dropout").get<double>();
    }
    if (facts.contains("flow_shift")) train.flow_shift = facts.at("flow_shift").get<double>();
    if (reference.all_weights()) {
      train.method = &train_method_named("full");
    } else {
      train.lora.init = reference.lora_path;
      train.lora.targets = reference.lora_targets;
      train.lora.rank = test::lora_rank;
      train.lora.alpha = test::lora_alpha;
      train.lora.dropout = facts.value("lora_dropout", 0.0);
      std::tie(train.lora.rank_pattern, train.lora.alpha_pattern) =
          test::patterns_of(*reference.lora);
    }
  }
  ~Training() {
    ranks_.barrier();
    std::error_code ignored;
    if (ranks_.rank() == 0) std::filesystem::remove_all(folder_, ignored);
  }

  Trained run(const Way& way) {
    Job job = job_;
    job.dtype = way.dtype;
    job.train->reproducible = way.reproducible;
    if (way.steps) job.train->steps = *way.steps;
    job.train->ema = way.ema;
    if (way.lora_dropout) job.train->lora.dropout = *way.lora_dropout;
    if (way.image_dropout) job.train->image_dropout = *way.image_dropout;
    if (way.constant_rate) job.train->schedule = &ops::rate_schedule_named("constant");
    job.parallel.replicas = way.replicas;
    job.parallel.ulysses = way.ulysses;
    job.parallel.ring = way.ring;
    if (way.weights) job.parallel.weights = *way.weights;
    job.parallel.shard = way.shard;
    const Conditions conditions =
        plan_conditions(job, ranks_.size(), 1, std::vector<int>(std::size_t(ranks_.size()), 0),
                        ops::compute_dtype(job.dtype), false);
    std::vector<UsableSample> usable;
    for (std::int64_t i = 0; i < latents_[0]; ++i) {
      usable.push_back(
          {i, {fmt::format("{}.mp4", i), reference_.prompts[std::size_t(i)], "test"}, {}});
      usable.back().facts.hash = fmt::format("hash {}", i);
    }
    if (way.fps) job.train->data.fps = way.fps;
    for (std::size_t i = 0; i < way.own_rates.size(); ++i) {
      job.train->data.fps.reset();
      job.train->data.own_fps = true;
      usable.at(i).facts.fps = way.own_rates[i];
    }
    if (way.buckets) {
      DataSettings& data = job.train->data;
      data.height = data.width = data.frames = {};
      data.buckets = {reference_.size, reference_.narrower()};
      usable.at(1).bucket = 1;
    }
    std::vector<UsableSample> validation;
    if (way.own_validation) {
      for (const std::size_t i : {1U, 2U}) validation.push_back(usable[i]);
      usable.resize(1);
    }
    const Samples samples = plan_samples(job, conditions, checked_buckets(job), usable, validation);
    const CachedFiles files =
        cached_files(samples, folder_ / "cache", fmt::format("test {}", way.brighter));
    fill_cache(files, way.brighter);
    Steps steps(ranks_, samples, files, *job.train, {job.dtype, job.numerics, {}});
    Trained trained;
    if (!steps.trains()) {
      trained.steps.resize(std::size_t(job.train->steps));
      return trained;
    }
    steps.use_values_together();
    const std::int64_t every = way.validate_every > 0 ? way.validate_every : job.train->steps;
    for (std::int64_t i = 0; i <= job.train->steps; ++i) {
      if (i % every == 0 && (i > 0 || way.validate_before)) {
        trained.validations.push_back(steps.validate_together().value());
      }
      if (i < job.train->steps) trained.steps.push_back(steps.step_together(i));
    }
    const Trainable& model = steps.model();
    for (const TrainedMatrix& matrix : model.matrices()) trained.names.push_back(matrix.name);
    for (const Tensor& value : steps.results_together(0, model.matrices().size())) {
      trained.values.push_back(value.clone());
    }
    for (std::size_t i = 0; reference_.all_weights() && i < trained.values.size(); ++i) {
      Tensor change = trained.values[i].clone();
      const Tensor start = model.initial(i);
      for (std::int64_t e = 0; e < change.numel(); ++e) {
        change.data<float>()[e] -= start.data<float>()[e];
      }
      trained.changes.push_back(change);
    }
    return trained;
  }

 private:
  // A new folder that all ranks know.
  std::filesystem::path comm_folder() const {
    std::string name;
    if (ranks_.rank() == 0) {
      name = (std::filesystem::temp_directory_path() / "reelmesh-XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
    }
    return ranks_.broadcast(name, 0);
  }

  void fill_cache(const CachedFiles& files, float brighter) const {
    comm::run_on_first_rank(ranks_, [&] { prepare_cache(folder_ / "cache"); });
    const Tensor mean = reference_.get("latent_mean"), deviation = reference_.get("latent_std");
    const Shape one(latents_.begin() + 1, latents_.end());
    const auto everywhere = [&](const Tensor& x, const Shape& shape) {
      return Sharded{x.reshape(shape), Layout::replicated(shape, ranks_.size()), ranks_};
    };
    // The first columns of a sample, as many as its file has.
    const auto cut = [&](const Tensor& x, std::size_t i, const Shape& shape) {
      Tensor part = Tensor::empty(shape, DType::float32);
      copy_box(whole_box(shape), x.rows(std::int64_t(i), 1).reshape(one), whole_box(one), part,
               whole_box(shape));
      return everywhere(part, shape);
    };
    const auto is_written = [&](const CachedSample& file) {  // for another way
      const bool found = ranks_.rank() == 0 && std::filesystem::exists(file.path);
      return !ranks_.broadcast(found ? "yes" : "", 0).empty();
    };
    for (std::size_t i = 0; i < files.captions.size(); ++i) {
      const CachedSample& file = files.captions[i];
      if (is_written(file)) continue;
      const Shape& shape = file.shapes.prompt_embeds;
      write_sample(ranks_, file, {.prompt_embeds = everywhere(reference_.texts[i], shape)});
    }
    for (std::size_t i = 0; i < files.videos.size(); ++i) {
      if (is_written(files.videos[i])) continue;
      const SampleShapes& shapes = files.videos[i].shapes;
      SampleArrays arrays{.latent_mean = cut(mean, i, shapes.latent_mean),
                          .latent_std = cut(deviation, i, shapes.latent_std)};
      if (!shapes.image_latents.empty()) {
        arrays.image_latents = cut(reference_.get("image_latents"), i, shapes.image_latents);
        const Tensor rows = reference_.get("image_rows").rows(std::int64_t(i), 1);
        arrays.image_rows = everywhere(rows, shapes.image_rows);
      }
      const Shape& frame = shapes.first_frame;
      if (!frame.empty()) {
        arrays.first_frame = everywhere(first_frame(std::int64_t(i), frame, brighter), frame);
      }
      write_sample(ranks_, files.videos[i], arrays);
    }
  }

  // As in make_training_data.py.
  static Tensor first_frame(std::int64_t sample, const Shape& shape, float brighter) {
    Tensor frame = Tensor::empty(shape, DType::float32);
    float* out = frame.data<float>();
    for (std::int64_t row = 0; row < shape[0]; ++row) {
      for (std::int64_t column = 0; column < shape[1]; ++column) {
        for (std::int64_t channel = 0; channel < 3; ++channel) {
          const std::int64_t value = 3 * row + 5 * column + 40 * channel + 60 * sample;
          *out++ = static_cast<float>(value % 256) + brighter;
        }
      }
    }
    return frame;
  }

  const StepsReference& reference_;
  comm::Group ranks_;
  Job job_;
  Shape latents_;
  std::filesystem::path folder_;
};

// All parameters, or a LoRA.
class TrainingSteps : public ::testing::TestWithParam<std::string> {
 protected:
  static StepsReference reference_of(const std::string& name) {
    if (name.starts_with("opensora.")) return of_open_sora(name.substr(9));
    if (name.starts_with("wan.")) return of_wan(name.substr(4));
    return name.starts_with("all.") ? of_cogvideox("all_steps", name.substr(4))
                                    : of_cogvideox("ten_steps", name);
  }
};
INSTANTIATE_TEST_SUITE_P(CogVideoX, TrainingSteps,
                         ::testing::Values("sincos", "rotary", "v1_5", "patterns", "i2v", "i2v_1_5",
                                           "all.sincos", "all.rotary", "all.v1_5", "all.i2v",
                                           "all.i2v_1_5"));
INSTANTIATE_TEST_SUITE_P(OpenSora, TrainingSteps,
                         ::testing::Values("opensora.v1_0", "opensora.v1_2"));
INSTANTIATE_TEST_SUITE_P(Wan, TrainingSteps,
                         ::testing::Values("wan.all", "wan.lora", "wan.image.all",
                                           "wan.image.lora"));

// On all layouts, which takes long.
class TrainingLayouts : public TrainingSteps {};
INSTANTIATE_TEST_SUITE_P(CogVideoX, TrainingLayouts,
                         ::testing::Values("patterns", "rotary", "v1_5", "i2v", "all.sincos",
                                           "all.rotary", "all.v1_5", "all.i2v_1_5"));
INSTANTIATE_TEST_SUITE_P(OpenSora, TrainingLayouts,
                         ::testing::Values("opensora.v1_0", "opensora.v1_2"));
INSTANTIATE_TEST_SUITE_P(Wan, TrainingLayouts,
                         ::testing::Values("wan.all", "wan.lora", "wan.image.all",
                                           "wan.image.lora"));

// What depends on no model, but on whether a LoRA is trained.
class TrainingOptions : public TrainingSteps {};
INSTANTIATE_TEST_SUITE_P(CogVideoX, TrainingOptions, ::testing::Values("rotary", "all.v1_5"));

TEST_P(TrainingSteps, AreThoseOfPyTorch) {
  if (test::world().size() != 1 && test::world().size() != 3) {
    GTEST_SKIP() << "compared on 1 and 3 ranks; TrainingLayouts compares others with one rank";
  }
  const StepsReference reference = reference_of(GetParam());
  Training training(reference, test::world());
  const Trained trained = training.run({"chosen", {}, {}, {}, {}});
  if (trained.values.empty()) return;  // a rank that the layout leaves idle
  const nlohmann::json& rows = reference.facts().at("steps_done");
  ASSERT_EQ(trained.steps.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const StepResult& step = trained.steps[i];
    EXPECT_NEAR(step.loss / rows[i].at("loss").get<double>(), 1, 1e-4) << "step " << i;
    EXPECT_NEAR(step.gradient_norm / rows[i].at("gradient_norm").get<double>(), 1, 1e-4)
        << "step " << i;
    EXPECT_NEAR(step.learning_rate, rows[i].at("learning_rate").get<double>(), 1e-12);
    ASSERT_EQ(step.samples.size(), rows[i].at("samples").size());
    for (std::size_t place = 0; place < step.samples.size(); ++place) {
      const SampleLoss& sample = step.samples[place];
      EXPECT_EQ(sample.sample, rows[i].at("samples").at(place)) << "step " << i;
      const double timestep = rows[i].at("timesteps").at(place).get<double>();
      EXPECT_NEAR(sample.timestep, timestep, 1e-6 * timestep) << "step " << i;
      EXPECT_NEAR(sample.loss / rows[i].at("sample_losses").at(place).get<double>(), 1, 1e-4);
    }
  }
  const nlohmann::json& validations = reference.facts().at("validation");
  ASSERT_EQ(trained.validations.size(), validations.size());
  for (std::size_t v = 0; v < validations.size(); ++v) {
    for (std::size_t q = 0; q < validation_quarters; ++q) {
      const double expected = validations.at(v).at(q).get<double>();
      EXPECT_NEAR(trained.validations[v].loss[q] / expected, 1, v == 0 ? 1e-6 : 1e-4);
    }
  }
  double change = 0, difference = 0;
  if (reference.all_weights()) {
    for (std::size_t i = 0; i < trained.names.size(); ++i) {
      // Its gradient is zero, or little more than the rounding errors of terms that cancel, since
      // attention hardly depends on what is added to all keys; AdamW makes full steps of them.
      const bool of_keys = trained.names[i].ends_with("norm_k.bias") ||
                           trained.names[i].ends_with("qkv.bias") ||
                           trained.names[i].ends_with("kv_linear.bias");
      if (of_keys) continue;
      const Tensor kept = reference.get("change." + trained.names[i]);
      difference = std::max(
          difference, test::largest_difference_of_kept(trained.changes[i], kept, reference.kept));
    }
    change = reference.facts().at("largest_change").get<double>();
  }
  for (std::size_t i = 0; i < trained.names.size() && !reference.all_weights(); ++i) {
    const std::string& name = trained.names[i];  // MODULE.lora_A
    const bool down = name.ends_with(".lora_A");
    const std::string module = name.substr(0, name.rfind('.'));
    const Tensor expected = reference.get("final." + name + ".weight");
    const LoraModule& start = reference.lora->modules().at(module);
    const Tensor begun = reference.lora->file().load(down ? start.down : start.up, DType::float32);
    const Tensor values = down ? trained.values[i] : transposed(trained.values[i]);
    for (std::int64_t e = 0; e < expected.numel(); ++e) {
      const double wanted = expected.data<float>()[e];
      difference = std::max(difference, std::abs(values.data<float>()[e] - wanted));
      change = std::max(change, std::abs(begun.data<float>()[e] - wanted));
    }
  }
  EXPECT_GT(change, 0);
  EXPECT_LT(difference, 1e-3 * change);
}

void expect_same(const std::vector<SampleLoss>& a, const std::vector<SampleLoss>& b,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].loss, b[i].loss) << what << ", sample " << i;
    EXPECT_EQ(a[i].sample, b[i].sample) << what;
    EXPECT_EQ(a[i].timestep, b[i].timestep) << what;
  }
}

void expect_same(const Trained& a, const Trained& b, const std::string& what) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << what << ", step " << i;
    EXPECT_EQ(a.steps[i].gradient_norm, b.steps[i].gradient_norm) << what << ", step " << i;
    expect_same(a.steps[i].samples, b.steps[i].samples, what);
  }
  ASSERT_EQ(a.validations.size(), b.validations.size());
  for (std::size_t v = 0; v < a.validations.size(); ++v) {
    EXPECT_EQ(a.validations[v].loss, b.validations[v].loss) << what << ", validation " << v;
    expect_same(a.validations[v].samples, b.validations[v].samples, what);
  }
  ASSERT_EQ(a.values.size(), b.values.size());
  for (std::size_t t = 0; t < a.values.size(); ++t) {
    EXPECT_TRUE(test::same_bits(a.values[t], b.values[t])) << what << ", " << a.names[t];
  }
}

// The first rank trains alone; all ranks together get the same bits in every way: on three ranks
// three steps, in all ways in float32 and in two in bfloat16. In tests/long three and seven ranks
// do all of them in both types, up to twenty steps of those in which tokens, replicas and their
// sums are divided most, and other numbers of ranks a few in float32. Ten steps on three ranks are
// compared with PyTorch.
TEST_P(TrainingLayouts, HaveTheSameBits) {
  for (const char* name : {"rotary", "all.rotary", "all.v1_5"}) {
    if (GetParam() == name && !test::tests_are_long()) GTEST_SKIP() << "only in tests/long";
  }
  const StepsReference reference = reference_of(GetParam());
  const comm::Group& world = test::world();
  const comm::Group alone = world.split(world.rank() == 0 ? 0 : -1);
  const int n = world.size();
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const bool in_all_ways =
        (n == 3 && (test::tests_are_long() || dtype == DType::float32)) || n == 7;
    if (!in_all_ways && dtype == DType::bfloat16 && n != 3) continue;
    const auto same = [&](std::int64_t steps, const std::vector<Way>& ways) {
      Way way{.name = "alone", .dtype = dtype, .steps = steps, .validate_before = false};
      Trained one;
      if (alone.member()) one = Training(reference, alone).run(way);
      test::wait_asleep(world);
      Training together(reference, world);
      for (const Way& other : ways) {
        // On a CPU weights that change cannot stay in the file.
        if (reference.all_weights() && other.weights == WeightsChoice::host) continue;
        way = other;
        way.dtype = dtype;
        way.steps = steps;
        way.validate_before = false;
        const Trained trained = together.run(way);
        if (alone.member()) expect_same(one, trained, way.name);
      }
    };
    Way divided{"ring", 1, 1, n, {}};
    if (reference.divides_frames) {
      divided = {.name = "rows", .replicas = 1, .shard = Shard::height};
    }
    const bool has_image = reference.facts().contains("image_dropout");
    const bool few = !test::tests_are_long() || !in_all_ways || has_image ||
                     (reference.all_weights() && dtype == DType::bfloat16);
    const std::int64_t max = n == 3 && !reference.divides_frames ? 20 : 10;
    std::map<std::int64_t, std::vector<Way>> ways;  // by their numbers of steps
    ways[few ? 3 : max] = {divided, {"two replicas", n >= 2 ? 2 : 1, {}, {}, {}}};
    if (in_all_ways) {
      ways[3].push_back({"one replica, Ulysses", 1, n, 1, {}});
      ways[3].push_back({"sharded weights", 1, {}, {}, WeightsChoice::sharded});
      if (test::tests_are_long()) {
        ways[3].push_back({"replicas of one rank", n, 1, 1, {}});
        ways[3].push_back({"weights on the host", 1, {}, {}, WeightsChoice::host});
      }
    }
    for (const auto& [steps, of_steps] : ways) same(steps, of_steps);
  }
}

class TrainingBuckets : public TrainingSteps {};
INSTANTIATE_TEST_SUITE_P(Models, TrainingBuckets,
                         ::testing::Values("rotary", "all.i2v_1_5", "opensora.v1_2", "wan.lora",
                                           "wan.image.lora"));

// Clips of two sizes, and dropout of LoRAs: steps are of one size each, and have the same bits on
// all layouts. The first step with a sample of the size of the reference has the loss that it has
// without buckets.
TEST_P(TrainingBuckets, HaveTheSameBitsOnAllLayouts) {
  const StepsReference reference = reference_of(GetParam());
  const comm::Group& world = test::world();
  const comm::Group alone = world.split(world.rank() == 0 ? 0 : -1);
  const int n = world.size();
  const double dropout = reference.all_weights() ? 0 : 0.3;
  Way way{
      .name = "alone", .steps = 6, .validate_every = 3, .buckets = true, .lora_dropout = dropout};
  Trained one;
  if (alone.member()) {
    Training training(reference, alone);
    one = training.run(way);
    std::set<bool> narrow;
    for (const StepResult& step : one.steps) {
      for (const SampleLoss& sample : step.samples) {
        EXPECT_EQ(sample.sample == 1, step.samples.front().sample == 1);
        narrow.insert(sample.sample == 1);
      }
    }
    EXPECT_EQ(narrow.size(), 2U) << "6 steps have both sizes";
    // Validation before the first step: the same weights, noise and clips, but for the second.
    const Trained whole = training.run({.name = "one size", .steps = 1});
    const auto& found = one.validations[0].samples;
    const auto& expected = whole.validations[0].samples;
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].sample, expected[i].sample);
      EXPECT_EQ(found[i].loss == expected[i].loss, found[i].sample != 1) << "sample " << i;
    }
  }
  test::wait_asleep(world);
  Training together(reference, world);
  std::vector<Way> ways{{"divided", 1, {}, {}, {}}};
  if (n == 3 || n == 7) ways.push_back({"two replicas", 2, {}, {}, {}});
  for (Way other : ways) {
    other.steps = way.steps;
    other.validate_every = way.validate_every;
    other.buckets = true;
    other.lora_dropout = dropout;
    const Trained trained = together.run(other);
    if (alone.member()) expect_same(one, trained, other.name);
  }
}

// With the dropout 1 the latents of images are zeros, whatever the first frames are; with 0 not.
TEST(TrainingImages, AreDropped) {
  const StepsReference reference = of_cogvideox("ten_steps", "i2v_1_5");
  Training training(reference, test::world());
  for (const double dropout : {0.0, 1.0}) {
    Way way{.name = "dark", .steps = 1, .image_dropout = dropout};
    const Trained dark = training.run(way);
    way.brighter = 50;
    const Trained bright = training.run(way);
    if (dark.values.empty()) continue;
    EXPECT_EQ(bright.steps[0].loss == dark.steps[0].loss, dropout == 1);
    EXPECT_NE(bright.validations[0].loss, dark.validations[0].loss);  // never dropped there
  }
}

// With data.fps = own each sample is told that of its video, without its fraction.
TEST(TrainingRates, AreThoseOfTheVideos) {
  const StepsReference reference = of_open_sora("v1_2");
  Training training(reference, test::world());
  const auto losses = [&](std::optional<double> fps, const std::vector<double>& own_rates) {
    return training.run({.name = "rates", .steps = 1, .fps = fps, .own_rates = own_rates});
  };
  const Trained slow = losses(12, {}), fast = losses(29, {}), own = losses({}, {12, 29.97, 12});
  if (own.values.empty()) return;
  std::set<std::int64_t> found;
  const auto check = [&](const std::vector<SampleLoss>& samples,
                         const std::vector<SampleLoss>& if_slow,
                         const std::vector<SampleLoss>& if_fast) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const bool is_fast = samples[i].sample == 1;
      EXPECT_EQ(samples[i].loss, (is_fast ? if_fast : if_slow)[i].loss) << samples[i].sample;
      EXPECT_NE(samples[i].loss, (is_fast ? if_slow : if_fast)[i].loss) << samples[i].sample;
      found.insert(samples[i].sample);
    }
  };
  check(own.steps[0].samples, slow.steps[0].samples, fast.steps[0].samples);
  check(own.validations[0].samples, slow.validations[0].samples, fast.validations[0].samples);
  EXPECT_GT(found.size(), 1U);
  EXPECT_TRUE(found.contains(1));
}

// It changes nothing of the training, and samples of data.validation are not learned from.
TEST(TrainingValidation, IsOnTheSameClips) {
  const StepsReference reference = of_cogvideox("ten_steps", "rotary");
  Training training(reference, test::world());
  Way way{.name = "rarely", .steps = 2};
  const Trained rarely = training.run(way);
  way.validate_every = 1;
  const Trained often = training.run(way);
  if (rarely.values.empty()) return;
  ASSERT_EQ(rarely.validations.size(), 2U);
  ASSERT_EQ(often.validations.size(), 3U);
  EXPECT_EQ(often.validations.front().loss, rarely.validations.front().loss);
  EXPECT_EQ(often.validations.back().loss, rarely.validations.back().loss);
  expect_same({rarely.steps, {}, rarely.names, rarely.values, {}},
              {often.steps, {}, often.names, often.values, {}}, "often");
  const auto which = [](const std::vector<SampleLoss>& samples) {
    std::set<std::int64_t> found;
    for (const SampleLoss& sample : samples) found.insert(sample.sample);
    return found;
  };
  EXPECT_EQ(which(rarely.validations[0].samples), (std::set<std::int64_t>{0, 1, 2}));
  way.own_validation = true;
  const Trained own = training.run(way);
  EXPECT_EQ(which(own.validations[0].samples), (std::set<std::int64_t>{1, 2}));
  for (const StepResult& step : own.steps) {
    EXPECT_EQ(which(step.samples), (std::set<std::int64_t>{0}));
  }
  // They have the same loss as among the first clips of the data: their numbers are the same.
  for (std::size_t i = 0; i < own.validations[0].samples.size(); ++i) {
    EXPECT_EQ(own.validations[0].samples[i].loss,
              rarely.validations[0].samples[i + validation_quarters].loss);
  }
}

// With train.ema a running mean is written; the training itself goes on with the values.
TEST_P(TrainingOptions, MayBeAveraged) {
  const StepsReference reference = reference_of(GetParam());
  Training training(reference, test::world());
  Way way{.name = "values", .constant_rate = true};
  constexpr float share = 0.25F;
  Trained after;  // The first step has the rate 0.
  std::vector<Tensor> mean;
  for (std::int64_t steps = 1; steps <= 4; ++steps) {
    way.steps = steps;
    after = training.run(way);
    for (std::size_t i = 0; i < after.values.size(); ++i) {
      if (steps == 1) {
        mean.push_back(after.values[i]);
        continue;
      }
      for (std::int64_t e = 0; e < mean[i].numel(); ++e) {
        float& m = mean[i].data<float>()[e];
        m += share * (after.values[i].data<float>()[e] - m);
      }
    }
  }
  way.ema = 1 - share;
  const Trained averaged = training.run(way);
  ASSERT_EQ(averaged.values.size(), mean.size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    EXPECT_TRUE(test::same_bits(averaged.values[i], mean[i])) << averaged.names[i];
    EXPECT_FALSE(test::same_bits(averaged.values[i], after.values[i])) << averaged.names[i];
  }
  for (std::size_t i = 0; i < averaged.steps.size(); ++i) {
    EXPECT_EQ(averaged.steps[i].loss, after.steps[i].loss) << "step " << i;
  }
}

// Replicas that add their own gradients first: the same sums in another order.
TEST_P(TrainingOptions, NeedNotBeReproducible) {
  const StepsReference reference = reference_of(GetParam());
  const int n = test::world().size();
  Training training(reference, test::world());
  const Trained expected = training.run({"in order", n, 1, 1, {}});
  const Trained trained = training.run({"replicas first", n, 1, 1, {}, DType::float32, false});
  for (std::size_t i = 0; i < expected.steps.size(); ++i) {
    if (expected.values.empty()) break;
    EXPECT_NEAR(trained.steps[i].loss / expected.steps[i].loss, 1, 1e-5) << "step " << i;
    EXPECT_NEAR(trained.steps[i].gradient_norm / expected.steps[i].gradient_norm, 1, 1e-4);
  }
}

}  // namespace
}  // namespace reelmesh::train
