#include "train/samples.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "base/number.hpp"
#include "base/progress.hpp"
#include "base/stop.hpp"
#include "base/trace.hpp"
#include "comm/together.hpp"
#include "forecast/describe.hpp"
#include "forecast/plan_job.hpp"
#include "layout/relayout.hpp"
#include "models/common/gaussian_encoder.hpp"
#include "tensor/memory.hpp"
#include "tensor/purpose.hpp"
#include "train/replica.hpp"

namespace reelmesh::train {
namespace {

// Makes files, of which each rank writes its own and waits for no other.
class FileMaking {
 public:
  // makers: how many files are made at the same time; next: the stage.
  FileMaking(const comm::Group& world, const Samples& samples, pipeline::Stage next,
             pipeline::MemoryWatch& memory, std::int64_t makers)
      : world_(world), samples_(samples), next_(next), memory_(memory), makers_(makers) {}

  bool leaves_together() {
    memory_.look(next_, samples_.planned.plan, world_.rank());
    return world_.max(std::int64_t{stop::leaving() ? 1 : 0}) > 0;
  }

  // Calls make(i) for each of `count` files on all ranks, and finish() before each vote. → false if
  // the ranks are to leave. They vote about every 2 s, as a vote after each small file would take
  // longer than the file. Collective over the world.
  bool make_together(std::int64_t count, Progress& progress,
                     const std::function<void(std::int64_t)>& make,
                     const std::function<void()>& finish) {
    using Clock = std::chrono::steady_clock;
    constexpr double seconds = 2;
    for (std::int64_t first = 0, rounds = 1; first < count;) {
      if (leaves_together()) return false;
      const std::int64_t end = std::min(count, first + rounds * makers_);
      const Clock::time_point began = Clock::now();
      for (std::int64_t i = first; i < end; ++i) make(i);
      finish();
      comm::run_collectively(world_, [&] {
        if (failure_) std::rethrow_exception(failure_);
      });
      const std::chrono::duration<double> own = Clock::now() - began;
      const double fitting = seconds / std::max(world_.max(own.count()), 1e-3);
      rounds = std::clamp<std::int64_t>(to_integer(fitting * static_cast<double>(rounds)), 1,
                                        4 * rounds);
      progress.advance(end - first);
      first = end;
    }
    return true;
  }

  // Writes a file from the ranks of `group`. An error ends the job at the next vote.
  void write(const comm::Group& group, const CachedSample& file, const SampleArrays& arrays) {
    try {
      if (!failure_) write_sample(group, file, arrays);
    } catch (const std::exception&) {
      failure_ = std::current_exception();
    }
  }

 private:
  const comm::Group& world_;
  const Samples& samples_;
  pipeline::Stage next_;
  pipeline::MemoryWatch& memory_;
  std::int64_t makers_;
  std::exception_ptr failure_;  // of this rank
};

// The ranks write in turns. Each gets its embedding some captions later, so that the first ranks of
// the text encoder do not wait for the last ones. → false if the ranks are to leave.
bool encode_captions(const comm::Group& world, const Samples& samples,
                     const std::vector<CachedSample>& files,
                     const std::vector<std::size_t>& missing, const pipeline::Computing& computing,
                     pipeline::MemoryWatch& memory) {
  if (missing.empty()) return true;
  FileMaking files_made(world, samples, pipeline::Stage::text, memory, world.size());
  if (files_made.leaves_together()) return false;
  pipeline::TextStage encode(world, samples.planned, computing);
  encode.load();
  const comm::Group alone = world.split(world.rank());
  Progress progress("encoding captions", std::ssize(missing), "caption",
                    ProgressLine::standard_error(world.rank() == 0));
  const int holder = samples.planned.plan.embeddings_rank();
  constexpr int most_waiting = 8;                       // a few MiB each
  std::deque<std::pair<std::int64_t, Tensor>> encoded;  // empty tensors where they are not held
  const auto write_first = [&] {
    const auto [i, held] = encoded.front();
    encoded.pop_front();
    const CachedSample& file = files[missing[static_cast<std::size_t>(i)]];
    const Shape& shape = file.shapes.prompt_embeds;
    const auto on = [&](int rank) { return Layout::on_one_rank(shape, world.size(), rank); };
    const int writer = static_cast<int>(i % world.size());
    const Tensor values = relayout({held, on(holder), world}, on(writer)).local;
    if (world.rank() != writer) return;
    SampleArrays arrays;
    arrays.prompt_embeds = {values, Layout::on_one_rank(shape, 1, 0), alone};
    files_made.write(alone, file, arrays);
  };
  const auto make = [&](std::int64_t i) {
    const std::size_t index = missing[static_cast<std::size_t>(i)];
    const Tensor embedding = encode(samples.clip(index));
    const Shape& shape = files[index].shapes.prompt_embeds;
    encoded.emplace_back(i, world.rank() == holder
                                ? embedding.on({}).to(DType::float32).reshape(shape)
                                : Tensor::empty({0, shape[1]}, DType::float32));
    if (std::ssize(encoded) > std::min(world.size(), most_waiting)) write_first();
  };
  const auto write_all = [&] {
    while (!encoded.empty()) write_first();
  };
  if (!files_made.make_together(std::ssize(missing), progress, make, write_all)) return false;
  progress.finish();
  encode.release();
  return true;
}

// This rank's rectangle of the first frame, [row, column, 3]: empty unless its frames begin with
// it. pixels: uint8 [frame, row, column, 3], the box `own` of a video.
Tensor first_frame(const Tensor& pixels, const Box& own) {
  if (own.empty() || own.offset[0] > 0) return Tensor::empty({0, 0, 3}, DType::uint8);
  return pixels.rows(0, 1).clone().reshape({own.extent[1], own.extent[2], 3});
}

// Numbers 0 to 255.
Tensor as_numbers(const Tensor& bytes) {
  Tensor numbers = Tensor::empty(bytes.shape(), DType::float32);
  std::ranges::copy(bytes.span<std::uint8_t>(), numbers.data<float>());
  return numbers;
}

// The box `own` of a video that begins with a frame and is grey, 0 of −1…1. frame: first_frame().
Tensor with_grey_frames(const Tensor& frame, const Box& own) {
  Tensor pixels = Tensor::zeros(own.extent, DType::float32);
  if (frame.empty()) return pixels;
  Tensor first = pixels.rows(0, 1);
  first.copy_from(scaled_pixels(frame, DType::float32).reshape(first.shape()));
  return pixels;
}

// The encoders of videos on this rank: the first of each group has that whose rows the model
// takes, as InputStage.
struct VideoEncoders {
  std::unique_ptr<const Encoder> latents;
  std::unique_ptr<const VisionEncoder> vision;
};

VideoEncoders load_encoders(const Family& family, const pipeline::Computing& computing,
                            const comm::Group& group) {
  VideoEncoders encoders;
  if (!group.member()) return encoders;
  const trace::Scope scope(trace::spans::load);
  const PurposeScope purpose(Purpose::weights);
  encoders.latents = family.encoder(computing.weights(family, ModelPart::vae), computing.dtype);
  if (!family.encodes_image_once() || !family.vision_pixels() || group.rank() > 0) return encoders;
  encoders.vision =
      family.vision_encoder(computing.weights(family, ModelPart::image_encoder), computing.dtype);
  return encoders;
}

// What the encoders make of a video. read: its pixels, uint8 [frame, row, column, 3]; pixels,
// latents: layouts; shapes: of the arrays. Collective over the group.
SampleArrays encode_video_together(const Family& family, const VideoEncoders& encoders, Tensor read,
                                   const Layout& pixels, const Layout& latents,
                                   const SampleShapes& shapes, const comm::Group& group) {
  const Box& own = own_box(pixels, group);
  SampleArrays arrays;
  const Encoder::Posterior posterior = encoders.latents->posterior({read, pixels, group}, latents);
  const Layout boxes = latents.with_axis(1, shapes.latent_mean.at(1));
  arrays.latent_mean = {posterior.mean, boxes, group};
  arrays.latent_std = {posterior.deviation, boxes, group};
  const Tensor frame = first_frame(std::exchange(read, {}), own);
  const Layout of_frame = pixels.cropped(0, 0, 1).without_axis(0);
  if (!shapes.first_frame.empty()) arrays.first_frame = {as_numbers(frame), of_frame, group};
  if (!shapes.image_latents.empty()) {
    // The mode of the posterior, as of `run`.
    arrays.image_latents = {
        encoders.latents->sample({with_grey_frames(frame, own), pixels, group}, latents, 1, {}),
        boxes, group};
  }
  if (!shapes.image_rows.empty()) {
    // Of the frame as the model sees it, resized and cropped; otherwise as of `run`.
    const auto on_first = [&](const Shape& shape) {
      return Layout::on_one_rank(shape, group.size(), 0);
    };
    const Tensor whole = relayout({frame, of_frame, group}, on_first(of_frame.global())).local;
    const Tensor rows =
        encoders.vision
            ? encoders.vision->embed(vision_pixels(whole, family.vision_pixels().value()))
                  .to(DType::float32)
            : Tensor::empty({0, shapes.image_rows[1]}, DType::float32);
    arrays.image_rows = {rows, on_first(shapes.image_rows), group};
  }
  return arrays;
}

// Each group of the plan encodes videos of its own; each of its ranks has a rectangle of frames. →
// false if the ranks are to leave.
bool encode_videos(const comm::Group& world, const Samples& samples,
                   const std::vector<CachedSample>& files, const std::vector<std::size_t>& missing,
                   const pipeline::Computing& computing, pipeline::MemoryWatch& memory) {
  if (missing.empty()) return true;
  const std::vector<RankRange>& ranges = samples.planned.plan.roles.decode;
  FileMaking files_made(world, samples, pipeline::Stage::input, memory, std::ssize(ranges));
  if (files_made.leaves_together()) return false;
  const auto own = std::ranges::find_if(
      ranges, [&](const RankRange& range) { return range.contains(world.rank()); });
  const auto which = static_cast<std::size_t>(own - ranges.begin());
  const comm::Group group =
      world.split(own == ranges.end() ? -1 : static_cast<int>(which)).connected();
  const Family& family = *samples.planned.family;
  const VideoEncoders encoders = load_encoders(family, computing, group);
  world.barrier();
  Progress progress("encoding videos", std::ssize(missing), "video",
                    ProgressLine::standard_error(world.rank() == 0));
  const auto make = [&](std::int64_t i) {
    if (!group.member() || static_cast<std::size_t>(i) % ranges.size() != which) return;
    if (group.size() == 1 && stop::leaving()) return;  // the next vote says so
    const std::size_t index = missing[static_cast<std::size_t>(i)];
    const UsableSample& sample = samples.usable[index];
    const CachedSample& file = files[index];
    const Clip clip = samples.clip(index);
    const Layout latents =
        samples.planned.clip_plan(clip, samples.planned.plan).decode[which].latents;
    const VideoSize& size = samples.bucket_of(index).size;
    const Layout pixels = encoded_pixels(clip, encoders.latents->frames_of(latents, size.frames));
    const trace::Mark mark(&trace::Recorder::clip, static_cast<int>(sample.index));
    SampleArrays arrays;
    {
      const trace::Scope scope(trace::spans::encode_video);
      arrays =
          encode_video_together(family, encoders, read_frames(sample, size, own_box(pixels, group)),
                                pixels, latents, file.shapes, group);
    }
    files_made.write(group, file, arrays);
  };
  if (!files_made.make_together(std::ssize(missing), progress, make, [] {})) return false;
  progress.finish();
  return true;
}

// The job whose clips are the samples, as far as it does not depend on them.
Job job_of_clips(const Job& job, const TrainingNoise& noise) {
  Job clips = job;
  clips.clips.clear();
  if (job.train->data.fps) clips.sample.fps = job.train->data.fps;
  // The fewest steps that the sampler has.
  clips.sample.steps = noise.process == TrainingNoise::Process::noise ? 2 : 1;
  clips.sample.guidance = 1;
  clips.batch = 1;
  clips.parallel.mode = Mode::phased;
  return clips;
}

void set_size(ClipSettings& settings, const VideoSize& size) {
  settings.height = size.height;
  settings.width = size.width;
  settings.frames = size.frames;
}

// Errors of planning and of the model name options of [data] instead of those of clips that are
// made: "sample.height: …" → "data.height: …", or "data.buckets: 9x40x64: height: …".
template <class F>
auto with_data_options(const F& plan, const DataSettings& data,
                       const std::optional<VideoSize>& bucket = {}) {
  try {
    return plan();
  } catch (const Error& error) {
    constexpr std::string_view section = "sample.";
    const std::string_view message = error.what();
    if (!message.starts_with(section)) throw;
    const std::size_t end = std::min(message.find(':'), message.size());
    std::string options(message.substr(0, end));
    for (std::size_t at = 0; (at = options.find(section, at)) != options.npos;) {
      options.replace(at, section.size(), data.buckets.empty() ? "data." : "");
    }
    const std::string of = bucket ? shown(*bucket) + ": " : "";
    fail(error.status(), "{}{}{}{}", data.buckets.empty() ? "" : "data.buckets: ", of, options,
         message.substr(end));
  }
}

}  // namespace

namespace {

// What the job says of timesteps and of their weights. Error(usage) for what this process does not
// have.
void set_recipe(TrainingNoise& noise, const TrainSettings& settings) {
  using Process = TrainingNoise::Process;
  const bool is_flow = noise.process == Process::flow || noise.process == Process::flow_to_noise;
  if (settings.timesteps) {
    require(is_flow, Status::usage,
            "train.timesteps: found {}, expected none: timesteps of this model, which is no flow, "
            "are uniform",
            timestep_draw_names[static_cast<std::size_t>(*settings.timesteps)]);
    noise.draw = *settings.timesteps;
  }
  for (const auto& [name, given, value] :
       {std::tuple{"train.logit-mean", &settings.logit_mean, &noise.logit_mean},
        {"train.logit-std", &settings.logit_std, &noise.logit_std}}) {
    if (!*given) continue;
    require(noise.draw == TimestepDraw::logit_normal, Status::usage,
            "{}: found {}, expected train.timesteps = logit-normal with it", name, **given);
    *value = static_cast<float>(**given);
  }
  require(!is_flow || !settings.min_snr, Status::usage,
          "train.min-snr: found {}, expected off: the model is a flow, which has train.timesteps",
          settings.min_snr.value_or(0));
  noise.min_snr = settings.min_snr;
}

}  // namespace

std::vector<Bucket> checked_buckets(const Job& job) {
  const DataSettings& data = job.train->data;
  const std::unique_ptr<const Family> family = Family::open(job.model);
  const VideoSize own = family->defaults().size;
  std::vector<VideoSize> sizes = data.buckets;
  if (sizes.empty()) {
    sizes.push_back({data.height.value_or(own.height), data.width.value_or(own.width),
                     data.frames.value_or(own.frames)});
  } else {
    require(!data.height && !data.width && !data.frames, Status::usage,
            "data.buckets: found with data.{}, expected one of them: buckets have sizes of their "
            "own",
            data.height  ? "height"
            : data.width ? "width"
                         : "frames");
  }
  const Tokenizer tokenizer = family->open_tokenizer();
  std::vector<Bucket> buckets;
  for (const VideoSize& size : sizes) {
    const auto check = [&] {
      // Refuses models and settings that cannot be trained.
      buckets.push_back({size, family->training_noise(job, size), family->defaults().fps});
      set_recipe(buckets.back().noise, *job.train);
      Job one = job_of_clips(job, buckets.back().noise);
      set_size(one.sample, size);
      one.clips.emplace_back();
      (void)family->clip(one, 0, tokenizer, {});
    };
    with_data_options(check, data, data.buckets.empty() ? std::nullopt : std::optional(size));
  }
  require(job.parallel.mode != Mode::split, Status::usage,
          "parallel.mode: found split, expected auto or phased: a training has one stage");
  require(job.parallel.cfg.value_or(1) == 1, Status::usage,
          "parallel.cfg: found 2, expected 1 or auto: a training has no guidance");
  require(job.train->min_rate <= job.train->learning_rate, Status::usage,
          "train.min-rate: found {}, expected at most train.learning-rate = {}",
          job.train->min_rate, job.train->learning_rate);
  using What = KeepRule::What;
  const What kept = job.train->keep.what;
  require(kept == What::none || kept == What::best || job.train->save_every > 0, Status::usage,
          "train.keep: found {}, expected train.save-every with it",
          kept == What::all ? "all" : fmt::format("{}", job.train->keep.count));
  require(kept != What::best || job.train->validate_every > 0, Status::usage,
          "train.keep: found best, expected train.validate-every with it");
  require(data.validation.empty() || job.train->validate_every > 0, Status::usage,
          "data.validation: found '{}', expected train.validate-every with it",
          shown(data.validation));
  require(job.train->sample_prompts.empty() || job.train->sample_every > 0, Status::usage,
          "train.sample-prompts: found '{}', expected train.sample-every with it",
          job.train->sample_prompts.string());
  const bool drops_image = family->image_scale().has_value();
  require(drops_image || job.train->image_dropout == default_image_dropout, Status::usage,
          "train.image-dropout: found {}, expected it only for a model that makes videos from "
          "images, of CogVideoX",
          job.train->image_dropout);
  const std::optional<double>& shift = job.train->flow_shift;
  require(
      !shift || buckets.front().noise.process == TrainingNoise::Process::flow_to_noise,
      Status::usage,
      "train.flow-shift: found {}, expected none: noise levels of this model have no shift that "
      "may be chosen",
      shift.value_or(0));
  const bool takes_image = drops_image || family->encodes_image_once();
  require(
      !takes_image || job.train->sample_every == 0 || !job.train->sample_prompts.empty(),
      Status::usage,
      "train.sample-every: found {}, expected train.sample-prompts with it, a .jsonl file whose "
      "lines have images: the model makes videos from images",
      job.train->sample_every);
  return buckets;
}

namespace {

// Unless the job says how many replicas there are: those with which a step takes the least time, as
// that of a clip is that of one rank divided by the ranks of a replica. Of several equal numbers
// the largest, as replicas exchange less than the ranks of one do.
void choose_replicas(ParallelRequest& request, int ranks, std::int64_t batch) {
  if (request.replicas) return;
  const std::int64_t at_least = MeshRequest{{}, request.ulysses, request.ring}.product();
  double best = 0;
  for (int replicas = 1; replicas <= std::min<std::int64_t>(batch, ranks / at_least); ++replicas) {
    const auto rounds = static_cast<double>((batch + replicas - 1) / replicas);
    const double speed = (ranks / replicas) / rounds;
    if (speed < best) continue;
    best = speed;
    request.replicas = replicas;
  }
}

// Calls plan(), which plans `clips` of the training `job`: with groups that encode videos of as few
// ranks as have the memory, but no more groups than videos. Otherwise with one for each replica.
void plan_with_small_encoders(const Job& job, Job& clips, const JobPlan& planned,
                              const Conditions& conditions, const std::function<void()>& plan) {
  ParallelRequest& request = clips.parallel;
  const int ranks = conditions.machine.ranks;
  const auto videos = static_cast<int>(
      std::clamp<std::int64_t>(std::ssize(clips.clips), 1, std::numeric_limits<int>::max()));
  const int asked = job.parallel.decode.value_or(0);
  for (int size = asked > 0 ? asked : std::max(1, ranks / videos); size < ranks; size *= 2) {
    request.decode = size;
    request.encoders = std::min(ranks / size, videos);
    plan();
    if (asked > 0 || fits(planned.plan, conditions)) return;
  }
  request.decode = job.parallel.decode;
  request.encoders.reset();
  plan();
}

// The same with fewer replicas than `clips` has, if only so it fits. More ranks of a replica share
// what one of them has in memory.
void plan_with_fewer_replicas(const Job& job, Job& clips, const JobPlan& planned,
                              const Conditions& conditions, const std::function<void()>& plan) {
  plan_with_small_encoders(job, clips, planned, conditions, plan);
  while (!job.parallel.replicas && !planned.plan.memory.fits() && *clips.parallel.replicas > 1) {
    --*clips.parallel.replicas;
    plan_with_small_encoders(job, clips, planned, conditions, plan);
  }
  const bool from_file = !conditions.on_gpu && planned.plan.weights.residence == Residence::host;
  require(lora_shape(*job.train) || !from_file,
          job.parallel.weights == WeightsChoice::host ? Status::usage : Status::unavailable,
          "parallel.weights: found host, by which weights stay in the checkpoint's file, expected "
          "replicated or sharded: train.method = {} changes them",
          job.train->method->name);
}

}  // namespace

std::vector<std::size_t> Samples::validating() const {
  constexpr std::int64_t first = 4;
  const bool own = std::ssize(usable) > learned;
  std::vector<std::size_t> which(
      static_cast<std::size_t>(own ? std::ssize(usable) - learned : std::min(first, learned)));
  std::iota(which.begin(), which.end(), static_cast<std::size_t>(own ? learned : 0));
  return which;
}

Samples plan_samples(const Job& job, const Conditions& conditions, std::vector<Bucket> buckets,
                     std::vector<UsableSample> usable, std::vector<UsableSample> validation) {
  require(lora_shape(*job.train) || job.train->lora.init.empty(), Status::usage,
          "lora.init: found '{}', expected none with train.method = {}, or train.method = lora",
          job.train->lora.init.string(), job.train->method->name);
  require(lora_shape(*job.train) || job.train->lora.dropout == 0, Status::usage,
          "lora.dropout: found {}, expected 0 with train.method = {}, or train.method = lora",
          job.train->lora.dropout, job.train->method->name);
  Samples samples;
  samples.learned = std::ssize(usable);
  samples.usable = std::move(usable);
  for (UsableSample& sample : validation) samples.usable.push_back(std::move(sample));
  samples.buckets = std::move(buckets);
  const TrainingNoise& noise = samples.buckets.front().noise;
  Job& clips = samples.clips;
  clips = job_of_clips(job, noise);
  choose_replicas(clips.parallel, conditions.machine.ranks, job.train->batch);
  const auto add_clip = [&](std::size_t sample, ClipRequest request) {
    set_size(request.settings, samples.bucket_of(sample).size);
    clips.clips.push_back(std::move(request));
  };
  TrainingToPlan training{.make = TrainedReplica::make};
  for (std::size_t i = 0; i < samples.usable.size(); ++i) {
    const UsableSample& sample = samples.usable[i];
    add_clip(i, {.prompt = sample.data.prompt, .where = sample.data.where});
    training.reading_bytes =
        std::max(training.reading_bytes, reading_bytes(sample, samples.bucket_of(i).size));
  }
  if (job.train->caption_dropout > 0 && !noise.null_caption) {
    add_clip(0, {.where = "train.caption-dropout"});
  }
  plan_with_fewer_replicas(job, clips, samples.planned, conditions, [&] {
    samples.planned = with_data_options([&] { return plan_job(clips, conditions, {}, training); },
                                        job.train->data);
  });
  return samples;
}

void plan_again(Samples& samples, const Job& job, Job clips, const Conditions& conditions) {
  plan_with_fewer_replicas(job, clips, samples.planned, conditions, [&] {
    reelmesh::plan_again(samples.planned, clips, conditions, samples.planned.clips);
  });
}

namespace {

std::vector<UsableSample> in_all_buckets(std::vector<UsableSample> samples,
                                         const DataSettings& data) {
  const std::size_t buckets = std::max<std::size_t>(1, data.buckets.size());
  while (samples.size() < buckets) samples.push_back(samples.back());
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i].bucket = i % buckets;
  return samples;
}

std::vector<UsableSample> listed(const DataSettings& data, const DataList& list) {
  std::vector<UsableSample> samples;
  for (DataSample& sample : read_data(data, list)) {
    if (sample.problem.empty()) samples.push_back({std::ssize(samples), std::move(sample), {}});
  }
  require(!samples.empty(), Status::data, "{}: none of the videos in {} can be used", list.option,
          shown(data.*list.paths));
  return in_all_buckets(std::move(samples), data);
}

}  // namespace

std::vector<UsableSample> listed_samples(const DataSettings& data) {
  if (data.paths.empty()) return in_all_buckets({UsableSample{}}, data);
  return listed(data, learned_clips);
}

std::vector<UsableSample> listed_validation(const DataSettings& data) {
  if (data.validation.empty()) return {};
  return listed(data, validation_clips);
}

CachedFiles cached_files(const Samples& samples, const std::filesystem::path& cache,
                         const std::string& encoders) {
  CachedFiles files;
  for (std::size_t i = 0; i < samples.clips.clips.size(); ++i) {
    const Clip clip = samples.clip(i);
    CachedSample& caption = files.captions.emplace_back();
    caption.record = {.prompt = samples.clips.clips[i].prompt, .text_fingerprint = encoders};
    caption.path = cached_path(cache, caption.record);
    caption.shapes.prompt_embeds = {clip.tokens(), samples.text_channels()};
    if (i == samples.usable.size()) break;  // the empty caption has no video
    const UsableSample& sample = samples.usable[i];
    const VideoSize& size = samples.bucket_of(i).size;
    CachedSample& video = files.videos.emplace_back();
    video.record = {
        .file = sample.data.video.string(),
        .hash = sample.facts.hash,
        .fingerprint = fmt::format("{}, size {}, {}", encoders, shown(size), sample.excerpt())};
    video.path = cached_path(cache, video.record);
    const Shape latents{clip.latents[0] - clip.dropped_frames, clip.latent_channels,
                        clip.latents[1], clip.latents[2]};
    video.shapes.latent_mean = video.shapes.latent_std = latents;
    const Family& family = *samples.planned.family;
    if (family.image_scale()) video.shapes.first_frame = {size.height, size.width, 3};
    if (family.encodes_image_once()) {
      video.shapes.image_latents = latents;
      video.shapes.image_rows = clip.vision;
    }
  }
  return files;
}

FilesToMake files_to_make(const comm::Group& world, const CachedFiles& files) {
  return {samples_to_make(world, files.videos), samples_to_make(world, files.captions)};
}

bool encode_samples(const comm::Group& world, const Samples& samples, const CachedFiles& files,
                    const FilesToMake& to_make, const pipeline::Computing& computing,
                    pipeline::MemoryWatch& memory) {
  bool complete =
      encode_captions(world, samples, files.captions, to_make.captions, computing, memory);
  release_free_memory();
  complete =
      complete && encode_videos(world, samples, files.videos, to_make.videos, computing, memory);
  release_free_memory();
  return complete;
}

}  // namespace reelmesh::train
