#include "train/frames.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <tuple>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/number.hpp"
#include "base/stop.hpp"
#include "base/text.hpp"
#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "layout/relayout.hpp"
#include "media/image.hpp"
#include "media/video.hpp"
#include "train/order.hpp"

namespace reelmesh {
namespace {

/// The number of the frame that is shown at the time i / fps, as far as there are so many.
double frame_at(std::int64_t i, double video_fps, double fps) {
  return std::floor(static_cast<double>(i) * video_fps / fps + 0.5);
}

/// Numbers of the frames that are chosen of a part of a video.
class Chosen {
 public:
  Chosen(const InputFacts& video, std::optional<double> fps, FrameRange part)
      : fps_(fps), video_fps_(video.fps), begin_(part.begin) {
    end_ = std::min(part.end, video.frames);
    expect(begin_ >= 0 && (!fps || *fps > 0), "frames from {} at {} fps", begin_, fps.value_or(0));
    // Of one frame no distance is known.
    if (video.times.empty() || end_ - begin_ < 2) return;
    times_ =
        std::span(video.times)
            .subspan(static_cast<std::size_t>(begin_), static_cast<std::size_t>(end_ - begin_));
  }

  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }
  /// Whether the part has so many.
  bool has(std::int64_t frames) const {
    expect(frames > 0, "{} frames", frames);
    if (fps_ && frames > 1 && !(video_fps_ > 0)) return false;
    return number(frames - 1) < static_cast<double>(end_);
  }
  std::vector<std::int64_t> frames(std::int64_t first, std::int64_t count) const {
    std::vector<std::int64_t> all;
    for (std::int64_t i = first; i < first + count; ++i) all.push_back(to_integer(number(i)));
    return all;
  }

 private:
  double number(std::int64_t i) const {
    const auto begin = static_cast<double>(begin_);
    if (!fps_) return begin + static_cast<double>(i);
    if (times_.empty()) return begin + frame_at(i, video_fps_, *fps_);
    const double time = times_[0] + 1e3 * static_cast<double>(i) / *fps_;
    return begin + static_cast<double>(media::nearest_frame(times_, time));
  }

  std::optional<double> fps_;
  double video_fps_;
  std::int64_t begin_, end_;
  std::span<const std::int32_t> times_;  // of the part, if the rate varies
};

/// The frames of a video that are shown between the times of a sample.
FrameRange part_of(const InputFacts& video, const DataSample& sample) {
  const auto first_after = [&](double seconds) {
    if (!video.times.empty()) {
      return std::ranges::lower_bound(video.times, 1e3 * seconds) - video.times.begin();
    }
    constexpr double rounding = 1e-6;  // 0.1 s · 30 / s is more than 3
    return to_integer(std::ceil(seconds * video.fps - rounding));
  };
  FrameRange part{0, video.frames};
  if (is_image(sample.video)) return part;
  if (sample.start) part.begin = first_after(*sample.start);
  if (sample.end) part.end = std::min(part.end, first_after(*sample.end));
  return part;
}

}  // namespace

InputFile input_file(const DataSample& sample) {
  const InputKind kind = is_image(sample.video) ? InputKind::image : InputKind::video;
  return {kind, sample.video, sample.where};
}

namespace {

/// What is known of the video of a sample.
struct Finding {
  InputFacts facts;
  std::string problem;  ///< why the file cannot be used; empty: it can be decoded
  Status status = Status::ok;
  bool missing = false;  ///< the file, of which an earlier job found these facts
};

/// goes_on: as of check_data.
Finding examine(const DataSample& sample, const FileCache& known, bool goes_on) {
  if (!sample.problem.empty()) return {{}, sample.problem, Status::data};
  try {
    return {.facts = index_input(input_file(sample), known)};
  } catch (const Error& error) {
    if (error.status() != Status::no_input && error.status() != Status::data &&
        error.status() != Status::io) {
      throw;  // not because of this file
    }
    if (goes_on && error.status() == Status::no_input) {
      if (const auto facts = facts_of_missing(input_file(sample), known)) {
        return {.facts = *facts, .problem = {}, .missing = true};
      }
    }
    // Without the place, as samples may share a video.
    return {{},
            problem_of(error, sample.where),
            error.status() == Status::no_input ? Status::no_input : Status::data};
  }
}

/// One of the samples with each video, and which of them a sample has.
struct Videos {
  std::vector<std::size_t> first;      ///< sample
  std::vector<std::size_t> of_sample;  ///< index in `first`

  explicit Videos(const std::vector<DataSample>& samples) {
    std::map<std::pair<std::filesystem::path, std::string>, std::size_t> known;  // and problem
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto [found, is_new] =
          known.try_emplace({samples[i].video, samples[i].problem}, first.size());
      if (is_new) first.push_back(i);
      of_sample.push_back(found->second);
    }
  }
};

std::vector<Finding> examine_together(const comm::Group& world,
                                      const std::vector<DataSample>& samples,
                                      const std::vector<std::size_t>& which, bool goes_on) {
  const FileCache known = input_cache();
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<InputFacts> facts;
  std::vector<std::string> problems;
  std::vector<Status> statuses;
  std::vector<std::int64_t> missing;
  comm::run_collectively(world, [&] {
    for (auto i = static_cast<std::size_t>(world.rank()); i < which.size(); i += ranks) {
      stop::leave_if_requested("the videos are checked");
      Finding finding = examine(samples[which[i]], known, goes_on);
      missing.push_back(finding.missing ? 1 : 0);
      facts.push_back(std::move(finding.facts));
      problems.push_back(std::move(finding.problem));
      statuses.push_back(finding.status);
    }
  });
  const auto all_facts = all_gather_facts(world, facts);
  const auto all_problems = comm::all_gather_texts(world, problems);
  const auto all_statuses = comm::all_gather_values(world, statuses);
  const auto all_missing = comm::all_gather_values(world, missing);
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < which.size(); ++i) {
    findings.push_back({all_facts[i % ranks].at(i / ranks), all_problems[i % ranks].at(i / ranks),
                        all_statuses[i % ranks].at(i / ranks),
                        all_missing[i % ranks].at(i / ranks) != 0});
  }
  if (const auto gone = std::ranges::count_if(findings, &Finding::missing); gone > 0) {
    log::info("{} of {} videos are no longer there; their encoded samples are used", gone,
              which.size());
  }
  return findings;
}

/// The size to which a frame is resized.
struct Fit {
  std::int64_t height, width;
};

std::int64_t rounded_ratio(std::int64_t a, std::int64_t b) { return (2 * a + b) / (2 * b); }

Fit fit(std::int64_t height, std::int64_t width, const VideoSize& size) {
  Fit to{size.height, size.width};
  if (size.width * height >= size.height * width) {  // the frame is relatively higher
    to.height = rounded_ratio(height * size.width, width);
  } else {
    to.width = rounded_ratio(width * size.height, height);
  }
  return to;
}

/// How much of a dimension is cut off before what is kept. drawn: in [0, 1).
std::int64_t cut_off(std::int64_t whole, std::int64_t kept, Crop crop, double drawn) {
  const std::int64_t rest = whole - kept;
  if (crop == Crop::center) return rest / 2;
  return std::min(rest, to_integer(drawn * static_cast<double>(rest + 1)));
}

/// Columns in the opposite order. image: uint8 [row, column, 3].
Tensor mirrored(const Tensor& image) {
  Tensor out = Tensor::empty(image.shape(), image.dtype());
  const std::int64_t width = image.shape(1), pixels = image.shape(0) * width;
  for (std::int64_t i = 0; i < pixels; ++i) {
    const std::int64_t column = i % width, from = i - column + (width - 1 - column);
    std::copy_n(image.data<std::uint8_t>() + 3 * from, 3, out.data<std::uint8_t>() + 3 * i);
  }
  return out;
}

/// Why a video that can be decoded does not give the frames of a size; empty if it does.
std::string problem_of(const DataSample& sample, const InputFacts& facts, const VideoSize& size,
                       std::optional<double> fps, const FrameRange& part) {
  const std::string name = sample.video.string();
  const std::int64_t frames = size.frames;
  const Fit to = fit(facts.height, facts.width, size);
  if (to.height * to.width > media::max_image_pixels) {
    return fmt::format("{}: has {} x {} pixels, whose sides differ too much for {} x {}", name,
                       facts.width, facts.height, size.width, size.height);
  }
  const bool is_part = sample.start || sample.end;
  if (is_part && facts.fps <= 0 && !is_image(sample.video)) {
    return fmt::format("{}: does not say its frames per second, which start and end need", name);
  }
  if (Chosen(facts, fps, part).has(frames)) return {};
  if (is_image(sample.video)) {
    return fmt::format("{}: is an image, expected a video of at least {} frames", name, frames);
  }
  const std::int64_t found = std::max<std::int64_t>(0, part.end - part.begin);
  const std::string between = is_part ? " between start and end" : "";
  if (!fps) {
    const std::string rate = facts.fps > 0 ? fmt::format(" at {:.4g} fps", facts.fps) : "";
    return fmt::format("{}: has {} frames{}{}, expected at least {}", name, found, rate, between,
                       frames);
  }
  if (facts.fps <= 0) {
    return fmt::format(
        "{}: does not say its frames per second, which only data.fps = own does not need", name);
  }
  if (!facts.times.empty()) {
    return fmt::format(
        "{}: has {} frames in {:.3g} s{}, at a variable rate, expected {} at {:.4g} fps", name,
        found, 1e-3 * facts.times.back(), between, frames, *fps);
  }
  return fmt::format("{}: has {} frames at {:.4g} fps{}, expected at least {} for {} at {:.4g} fps",
                     name, found, facts.fps, between, frame_at(frames - 1, facts.fps, *fps) + 1,
                     frames, *fps);
}

InputFacts without_times(const InputFacts& facts) {
  return {facts.frames, facts.height, facts.width, facts.fps,     facts.hash,
          facts.state,  {},           facts.begin, facts.distance};
}

/// What is random of a clip, as data_random() draws it.
void draw(UsableSample& sample, const VideoSize& size, const DataSettings& settings,
          TorchGenerator& random) {
  const Fit to = fit(sample.facts.height, sample.facts.width, size);
  sample.top = cut_off(to.height, size.height, settings.crop, random.rand());
  sample.left = cut_off(to.width, size.width, settings.crop, random.rand());
  sample.is_mirrored = random.rand() < settings.flip;
}

/// Why frames of clips cannot be decoded, of each clip; empty: they can.
std::vector<std::string> check_frames_together(const comm::Group& world,
                                               const std::vector<UsableSample>& clips) {
  const FileCache known = input_cache();
  std::vector<std::vector<std::size_t>> of_videos;  // clips
  std::map<std::filesystem::path, std::size_t> videos;
  for (std::size_t i = 0; i < clips.size(); ++i) {
    if (clips[i].is_missing) continue;
    const auto [found, is_new] = videos.try_emplace(clips[i].data.video, of_videos.size());
    if (is_new) of_videos.emplace_back();
    of_videos[found->second].push_back(i);
  }
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::string> mine;
  comm::run_collectively(world, [&] {
    for (auto v = static_cast<std::size_t>(world.rank()); v < of_videos.size(); v += ranks) {
      stop::leave_if_requested("the videos are checked");
      std::vector<FrameSpan> spans;
      for (const std::size_t i : of_videos[v]) {
        spans.push_back({clips[i].frames.front(), clips[i].frames.back(), clips[i].place});
      }
      // Without the place, as samples may share a video.
      const DataSample& first = clips[of_videos[v].front()].data;
      for (const std::string& problem : check_frames(input_file(first), spans, known)) {
        mine.push_back(
            problem.substr(problem.starts_with(first.where + ": ") ? first.where.size() + 2 : 0));
      }
    }
  });
  const auto all = comm::all_gather_texts(world, mine);
  std::vector<std::string> problems(clips.size());
  std::vector<std::size_t> next(ranks);
  for (std::size_t v = 0; v < of_videos.size(); ++v) {
    for (const std::size_t i : of_videos[v]) problems[i] = all[v % ranks].at(next[v % ranks]++);
  }
  return problems;
}

/// Which rates were changed, in one line.
void tell_rates(const std::vector<UsableSample>& samples, double fps, bool is_default,
                const DataList& list) {
  constexpr double tolerance = 1e-3;
  std::int64_t videos = 0, changed = 0;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const UsableSample& sample : samples) {
    if (is_image(sample.data.video)) continue;
    ++videos;
    if (std::abs(sample.facts.fps - fps) <= tolerance * fps) continue;
    ++changed;
    least = std::min(least, sample.facts.fps);
    most = std::max(most, sample.facts.fps);
  }
  if (changed == 0) return;
  const std::string from =
      least < most ? fmt::format("{:.4g} to {:.4g}", least, most) : fmt::format("{:.4g}", most);
  log::info(
      "{}: frames of {} of {} clips are chosen for {:.4g} in a second{}; their videos have {}",
      list.option, changed, videos, fps, is_default ? ", the model's rate" : "", from);
}

}  // namespace

std::vector<std::int64_t> chosen_frames(const InputFacts& video, std::optional<double> fps,
                                        std::int64_t frames, FrameRange part) {
  const Chosen chosen(video, fps, part);
  if (!chosen.has(frames)) return {};
  return chosen.frames(0, frames);
}

std::vector<std::vector<std::int64_t>> frames_of_clips(const InputFacts& video,
                                                       std::optional<double> fps,
                                                       std::int64_t frames, FramesFrom from,
                                                       double drawn, FrameRange part) {
  const Chosen chosen(video, fps, part);
  std::vector<std::vector<std::int64_t>> clips;
  if (!chosen.has(frames)) return clips;
  if (from == FramesFrom::all) {
    for (std::int64_t first = 0; chosen.has(first + frames); first += frames) {
      clips.push_back(chosen.frames(first, frames));
    }
    return clips;
  }
  // The frames with which a clip can begin are those before one that is too late.
  const auto begins = std::views::iota(chosen.begin(), chosen.end());
  const auto too_late = std::ranges::partition_point(begins, [&](std::int64_t begin) {
    return Chosen(video, fps, {begin, chosen.end()}).has(frames);
  });
  const std::int64_t last = *too_late - chosen.begin() - 1;
  std::int64_t begin = 0;
  if (from == FramesFrom::middle) begin = last / 2;
  if (from == FramesFrom::random) {
    begin = std::min(last, to_integer(drawn * static_cast<double>(last + 1)));
  }
  part = {chosen.begin() + begin, chosen.end()};
  clips.push_back(Chosen(video, fps, part).frames(0, frames));
  return clips;
}

std::string UsableSample::excerpt() const {
  if (frames.empty()) return "";
  std::string text = fmt::format("frames {}-{}", frames.front(), frames.back());
  if (frames.back() - frames.front() != std::ssize(frames) - 1) {
    text += fmt::format(" {:016x}", hash_of(fmt::format("{}", fmt::join(frames, ","))));
  }
  return fmt::format("{} from row {}, column {}{}", text, top, left,
                     is_mirrored ? ", mirrored" : "");
}

std::optional<double> sampled_rate(const DataSettings& settings, double model_fps) {
  if (settings.own_fps) return std::nullopt;
  return settings.fps.value_or(model_fps);
}

std::optional<std::size_t> chosen_bucket(const InputFacts& facts, std::optional<double> fps,
                                         std::span<const VideoSize> sizes, FrameRange part) {
  const Chosen chosen(facts, fps, part);
  // Better ones are less.
  const auto rank = [&](const VideoSize& size) {
    const auto a = static_cast<double>(facts.height * size.width);
    const auto b = static_cast<double>(facts.width * size.height);
    const bool within = size.height <= facts.height && size.width <= facts.width;
    const std::int64_t area = size.height * size.width;
    return std::tuple(-size.frames, std::max(a, b) / std::min(a, b), !within,
                      within ? -area : area);
  };
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!chosen.has(sizes[i].frames)) continue;
    if (!best || rank(sizes[i]) < rank(sizes[*best])) best = i;
  }
  return best;
}

std::vector<UsableSample> check_data(const comm::Group& world,
                                     const std::vector<DataSample>& samples,
                                     std::span<const VideoSize> sizes, const TrainSettings& train,
                                     double model_fps, const DataList& list, bool goes_on) {
  constexpr std::int64_t max_warnings = 20;
  const DataSettings& settings = train.data;
  const std::optional<double> fps = sampled_rate(settings, model_fps);
  const trace::Scope scope(trace::spans::check_inputs);
  const auto fewest_frames = static_cast<std::size_t>(
      std::ranges::min_element(sizes, {}, &VideoSize::frames) - sizes.begin());
  const Videos videos(samples);
  const std::vector<Finding> findings = examine_together(world, samples, videos.first, goes_on);
  std::vector<UsableSample> clips;
  struct Problem {
    std::int64_t index;  // as UsableSample::index
    std::string text;
    Status status;
  };
  std::vector<Problem> problems;
  std::int64_t index = 0, entry = 0, vary = 0;
  for (std::size_t i = 0; i < samples.size(); entry += samples[i++].repeat) {
    auto [facts, problem, status, missing] = findings[videos.of_sample[i]];
    std::size_t bucket = 0;
    FrameRange part;
    if (problem.empty()) {
      part = part_of(facts, samples[i]);
      bucket = chosen_bucket(facts, fps, sizes, part).value_or(fewest_frames);
      problem = problem_of(samples[i], facts, sizes[bucket], fps, part);
      status = Status::data;
    }
    if (!problem.empty()) {
      problems.push_back({index++, fmt::format("{}: {}", samples[i].where, problem), status});
      continue;
    }
    vary += facts.times.empty() ? 0 : 1;
    for (std::int64_t repeat = 0; repeat < samples[i].repeat; ++repeat) {
      TorchGenerator random = data_random(train.seed, entry + repeat);
      for (auto& frames : frames_of_clips(facts, fps, sizes[bucket].frames, settings.frames_from,
                                          random.rand(), part)) {
        UsableSample& clip = clips.emplace_back();
        clip.index = index++;
        clip.data = samples[i];
        clip.is_missing = missing;
        clip.bucket = bucket;
        clip.frames = std::move(frames);
        clip.place =
            media::frame_place(facts.times, facts.begin, facts.distance, clip.frames.front());
        clip.facts = without_times(facts);
        draw(clip, sizes[bucket], settings, random);
      }
      require(index <= max_samples, Status::data,
              "{}: found more than {} clips in {}, expected at most as many", list.option,
              max_samples, shown(settings.*list.paths));
    }
  }
  const std::vector<std::string> undecoded = check_frames_together(world, clips);
  std::vector<UsableSample> usable;
  for (std::size_t i = 0; i < clips.size(); ++i) {
    if (undecoded[i].empty()) {
      usable.push_back(std::move(clips[i]));
    } else {
      problems.push_back(
          {clips[i].index, fmt::format("{}: {}", clips[i].data.where, undecoded[i]), Status::data});
    }
  }
  std::ranges::sort(problems, {}, &Problem::index);
  const std::int64_t left_out = std::ssize(problems);
  for (std::int64_t i = 0; i < left_out; ++i) {
    const Problem& problem = problems[static_cast<std::size_t>(i)];
    require(!settings.strict, problem.status, "{}", problem.text);
    if (i < max_warnings) log::warning("{}; it is left out", problem.text);
  }
  require(!usable.empty(), Status::data,
          "{}: none of the {} videos in {} can be used, expected at least one; the first: {}",
          list.option, samples.size(), shown(settings.*list.paths), problems.front().text);
  if (fps) tell_rates(usable, *fps, !settings.fps, list);
  if (vary > 0 && !fps) {
    log::warning(
        "{}: {} of {} videos have a variable rate; with data.fps = own their frames are taken one "
        "after the other",
        list.option, vary, samples.size());
  }
  if (left_out > max_warnings) {
    log::warning("{}: {} of {} videos in {} are left out, {} of them without a message",
                 list.option, left_out, samples.size(), shown(settings.*list.paths),
                 left_out - max_warnings);
  }
  return usable;
}

std::int64_t reading_bytes(const UsableSample& sample, const VideoSize& size) {
  return reading_bytes({.file = input_file(sample.data),
                        .last = {},
                        .frames = size.frames,
                        .encoded_frames = size.frames,
                        .noise = {}},
                       sample.facts, size);
}

Tensor read_frames(const UsableSample& sample, const VideoSize& size, const Box& box) {
  const InputFacts& facts = sample.facts;
  const std::vector<std::int64_t>& chosen = sample.frames;
  expect(whole_box({std::ssize(chosen), size.height, size.width, 3}).contains(box),
         "box {} of {} frames of {} x {} pixels", to_string(box), chosen.size(), size.height,
         size.width);
  Tensor pixels = Tensor::empty(box.extent, DType::uint8);
  if (box.empty()) return pixels;
  const std::vector<std::int64_t> frames(chosen.begin() + box.offset[0],
                                         chosen.begin() + box.end(0));
  const Fit to = fit(facts.height, facts.width, size);
  read_input_frames(
      input_file(sample.data), facts, frames,
      [&](std::int64_t place, std::int64_t count, const Tensor& found) {
        Tensor resized = media::resize_lanczos(found, to.height, to.width);
        if (sample.is_mirrored) resized = mirrored(resized);
        const std::int64_t left =
            sample.is_mirrored ? to.width - size.width - sample.left : sample.left;
        copy_frame(resized, -sample.top, -left, box.offset[0] + place, count, pixels, box);
      },
      sample.place);
  return pixels;
}

}  // namespace reelmesh
