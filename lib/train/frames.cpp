#include "train/frames.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

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

namespace reelmesh {
namespace {

/// The number of the frame that is shown at the time i / fps, as far as there are so many.
double frame_at(std::int64_t i, double video_fps, double fps) {
  return std::floor(static_cast<double>(i) * video_fps / fps + 0.5);
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
};

Finding examine(const DataSample& sample, const FileCache& known) {
  if (!sample.problem.empty()) return {{}, sample.problem, Status::data};
  try {
    return {.facts = check_input(input_file(sample), known)};
  } catch (const Error& error) {
    if (error.status() != Status::no_input && error.status() != Status::data &&
        error.status() != Status::io) {
      throw;  // not because of this file
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
                                      const std::vector<std::size_t>& which) {
  const FileCache known = input_cache();
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<InputFacts> facts;
  std::vector<std::string> problems;
  std::vector<Status> statuses;
  comm::run_collectively(world, [&] {
    for (auto i = static_cast<std::size_t>(world.rank()); i < which.size(); i += ranks) {
      stop::leave_if_requested("the videos are checked");
      Finding finding = examine(samples[which[i]], known);
      facts.push_back(std::move(finding.facts));
      problems.push_back(std::move(finding.problem));
      statuses.push_back(finding.status);
    }
  });
  const auto all_facts = all_gather_facts(world, facts);
  const auto all_problems = comm::all_gather_texts(world, problems);
  const auto all_statuses = comm::all_gather_values(world, statuses);
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < which.size(); ++i) {
    findings.push_back({all_facts[i % ranks].at(i / ranks), all_problems[i % ranks].at(i / ranks),
                        all_statuses[i % ranks].at(i / ranks)});
  }
  return findings;
}

/// The size to which a frame is resized, and the row and column of it where the sample begins.
struct Fit {
  std::int64_t height, width, top, left;
};

std::int64_t rounded_ratio(std::int64_t a, std::int64_t b) { return (2 * a + b) / (2 * b); }

Fit fit(std::int64_t height, std::int64_t width, const VideoSize& size) {
  Fit to{size.height, size.width, 0, 0};
  if (size.width * height >= size.height * width) {  // the frame is relatively higher
    to.height = rounded_ratio(height * size.width, width);
  } else {
    to.width = rounded_ratio(width * size.height, height);
  }
  to.top = (to.height - size.height) / 2;
  to.left = (to.width - size.width) / 2;
  return to;
}

/// Why a video that can be decoded does not give the frames of a size; empty if it does.
std::string problem_of(const DataSample& sample, const InputFacts& facts, const VideoSize& size,
                       std::optional<double> fps) {
  const std::string name = sample.video.string();
  const std::int64_t frames = size.frames;
  const Fit to = fit(facts.height, facts.width, size);
  if (to.height * to.width > media::max_image_pixels) {
    return fmt::format("{}: has {} x {} pixels, whose sides differ too much for {} x {}", name,
                       facts.width, facts.height, size.width, size.height);
  }
  if (!chosen_frames(facts, fps, frames).empty()) return {};
  if (is_image(sample.video)) {
    return fmt::format("{}: is an image, expected a video of at least {} frames", name, frames);
  }
  if (!fps) {
    const std::string rate = facts.fps > 0 ? fmt::format(" at {:.4g} fps", facts.fps) : "";
    return fmt::format("{}: has {} frames{}, expected at least {}", name, facts.frames, rate,
                       frames);
  }
  if (facts.fps <= 0) {
    return fmt::format("{}: does not say its frames per second, which data.fps needs", name);
  }
  if (!facts.times.empty()) {
    return fmt::format("{}: lasts {:.3g} s, at a variable rate, expected {} frames at {:.4g} fps",
                       name, 1e-3 * facts.times.back(), frames, *fps);
  }
  return fmt::format("{}: has {} frames at {:.4g} fps, expected at least {} for {} at {:.4g} fps",
                     name, facts.frames, facts.fps, frame_at(frames - 1, facts.fps, *fps) + 1,
                     frames, *fps);
}

}  // namespace

std::vector<std::int64_t> chosen_frames(const InputFacts& video, std::optional<double> fps,
                                        std::int64_t frames) {
  expect(frames > 0 && (!fps || *fps > 0), "{} frames at {} fps", frames, fps.value_or(0));
  if (fps && frames > 1 && !(video.fps > 0)) return {};
  const auto frame = [&](std::int64_t i) {
    if (!fps) return static_cast<double>(i);
    if (video.times.empty()) return frame_at(i, video.fps, *fps);
    return static_cast<double>(media::nearest_frame(video.times, 1e3 * double(i) / *fps));
  };
  if (frame(frames - 1) >= static_cast<double>(video.frames)) return {};
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < frames; ++i) chosen.push_back(to_integer(frame(i)));
  return chosen;
}

std::optional<std::size_t> chosen_bucket(const InputFacts& facts, std::optional<double> fps,
                                         std::span<const VideoSize> sizes) {
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
    if (chosen_frames(facts, fps, sizes[i].frames).empty()) continue;
    if (!best || rank(sizes[i]) < rank(sizes[*best])) best = i;
  }
  return best;
}

std::vector<UsableSample> check_data(const comm::Group& world,
                                     const std::vector<DataSample>& samples,
                                     std::span<const VideoSize> sizes, const DataSettings& settings,
                                     const DataList& list) {
  constexpr std::int64_t max_warnings = 20;
  const trace::Scope scope(trace::spans::check_inputs);
  const auto fewest_frames = static_cast<std::size_t>(
      std::ranges::min_element(sizes, {}, &VideoSize::frames) - sizes.begin());
  const Videos videos(samples);
  const std::vector<Finding> findings = examine_together(world, samples, videos.first);
  std::vector<UsableSample> usable;
  std::string first_problem;
  std::int64_t left_out = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    auto [facts, problem, status] = findings[videos.of_sample[i]];
    std::size_t bucket = 0;
    if (problem.empty()) {
      bucket = chosen_bucket(facts, settings.fps, sizes).value_or(fewest_frames);
      problem = problem_of(samples[i], facts, sizes[bucket], settings.fps);
      status = Status::data;
    }
    if (problem.empty()) {
      usable.push_back({static_cast<std::int64_t>(i), samples[i], facts, bucket});
      continue;
    }
    problem = fmt::format("{}: {}", samples[i].where, problem);
    require(!settings.strict, status, "{}", problem);
    if (++left_out <= max_warnings) log::warning("{}; it is left out", problem);
    if (left_out == 1) first_problem = problem;
  }
  require(!usable.empty(), Status::data,
          "{}: none of the {} videos in {} can be used, expected at least one; the first: {}",
          list.option, samples.size(), (settings.*list.path).string(), first_problem);
  const auto vary = std::ranges::count_if(
      usable, [](const UsableSample& sample) { return !sample.facts.times.empty(); });
  if (vary > 0 && !settings.fps) {
    log::warning(
        "{}: {} of {} videos have a variable rate; their frames are taken one after the "
        "other, with data.fps by their times",
        list.option, vary, usable.size());
  }
  if (left_out > max_warnings) {
    log::warning("{}: {} of {} videos in {} are left out, {} of them without a message",
                 list.option, left_out, samples.size(), (settings.*list.path).string(),
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

Tensor read_frames(const UsableSample& sample, const VideoSize& size, std::optional<double> fps,
                   const Box& box) {
  const InputFacts& facts = sample.facts;
  const auto chosen = chosen_frames(facts, fps, size.frames);
  expect(whole_box({std::ssize(chosen), size.height, size.width, 3}).contains(box),
         "box {} of {} frames of {} x {} pixels", to_string(box), chosen.size(), size.height,
         size.width);
  Tensor pixels = Tensor::empty(box.extent, DType::uint8);
  if (box.empty()) return pixels;
  std::map<std::int64_t, std::vector<std::int64_t>> uses;  // frame of the file → frames of the box
  std::vector<std::int64_t> frames;
  for (std::int64_t i = box.offset[0]; i < box.end(0); ++i) {
    const std::int64_t frame = chosen[static_cast<std::size_t>(i)];
    if (uses[frame].empty()) frames.push_back(frame);
    uses[frame].push_back(i);
  }
  const Fit to = fit(facts.height, facts.width, size);
  read_input_frames(
      input_file(sample.data), facts, frames, [&](std::int64_t frame, const Tensor& found) {
        const Tensor resized = media::resize_lanczos(found, to.height, to.width);
        for (const std::int64_t i : uses.at(frame)) {
          Box part = box;
          part.offset[0] = i;
          part.extent[0] = 1;
          copy_box(part, resized, {{i, -to.top, -to.left, 0}, {1, to.height, to.width, 3}}, pixels,
                   box);
        }
      });
  return pixels;
}

}  // namespace reelmesh
