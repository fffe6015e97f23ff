#include "job/inputs.hpp"

#include <algorithm>
#include <map>

#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "layout/relayout.hpp"
#include "media/image.hpp"
#include "media/video.hpp"
#include "models/common/gaussian_encoder.hpp"

namespace reelmesh {
namespace {

std::vector<InputFile> distinct_files(const Job& job) {
  std::vector<InputFile> files;
  std::map<std::filesystem::path, InputKind> seen;
  for (std::size_t i = 0; i < job.clip_count(); ++i) {
    const ClipRequest request = job.request(i);
    for (const InputFile& file : {clip_input_file(job, request), clip_last_image(job, request)}) {
      if (file.kind == InputKind::none) continue;
      const auto [known, is_new] = seen.emplace(file.path, file.kind);
      require(known->second == file.kind, Status::usage,
              "{}: found '{}', which another clip gives as {}, expected one kind of file",
              file.where, file.path.string(), name_of(known->second));
      if (is_new) files.push_back(file);
    }
  }
  return files;
}

}  // namespace

InputFile clip_input_file(const Job& job, const ClipRequest& request) {
  const bool own = !request.image->empty() || !request.video->empty();
  const std::filesystem::path &image = own ? *request.image : job.image,
                              &video = own ? *request.video : job.video;
  const auto where = [&](InputKind kind) {
    return own && !request.where.empty() ? fmt::format("{}: {}", request.where, name_of(kind))
                                         : fmt::format("prompt.{}", name_of(kind));
  };
  require(image.empty() || video.empty(), Status::usage,
          "{}: found '{}', and the video '{}', expected an image or a video",
          where(InputKind::image), image.string(), video.string());
  if (!image.empty()) return image_file(image, where(InputKind::image));
  if (!video.empty()) return {InputKind::video, video, where(InputKind::video)};
  return {};
}

InputFile clip_last_image(const Job& job, const ClipRequest& request) {
  const bool own = !request.last_image->empty();
  const std::filesystem::path& image = own ? *request.last_image : job.last_image;
  if (image.empty()) return {};
  const std::string where = own && !request.where.empty()
                                ? fmt::format("{}: last_image", request.where)
                                : std::string("prompt.last-image");
  require(clip_input_file(job, request).kind == InputKind::image, Status::usage,
          "{}: found '{}' for a clip that begins from no image, expected it only with prompt.image",
          where, image.string());
  return image_file(image, where);
}

void require_kept(const InputFile& file, const Job& job, const OutputFolder& output) {
  require(!output.is_written(opened_path(file)), Status::usage,
          "{}: found '{}', a file that this job writes itself in output.path {}, expected another "
          "output folder",
          file.where, file.path.string(), job.output.string());
}

void require_inputs_kept(const Job& job, const OutputFolder& output) {
  for (const InputFile& file : distinct_files(job)) require_kept(file, job, output);
  std::vector<GivenPath> paths = job.paths;
  for (const ModelFolder& folder : model_folders) {
    const std::filesystem::path& path = job.model.*folder.path;
    if (!path.empty()) paths.push_back({folder.option, path, PathUse::input});
  }
  for (const auto& [option, path, use] : paths) {
    if (use == PathUse::output) continue;
    const bool is_taken = use == PathUse::cache
                              ? output.is_own_folder(path, "cache")
                              : output.is_written(path) || output.is_written_folder(path);
    require(!is_taken, Status::usage,
            "{}: found '{}', which this job writes itself, expected another output.path or {}",
            option, path.string(), use == PathUse::cache ? "folder" : "a copy");
  }
}

bool has_videos(const Job& job) {
  for (std::size_t i = 0; i < job.clip_count(); ++i) {
    if (clip_input_file(job, job.request(i)).kind == InputKind::video) return true;
  }
  return false;
}

Inputs probe_inputs(const Job& job) {
  Inputs inputs;
  for (const InputFile& file : distinct_files(job)) inputs[file.path] = probe_input(file);
  return inputs;
}

Inputs check_inputs(const comm::Group& world, const Job& job) {
  const std::vector<InputFile> files = distinct_files(job);
  if (files.empty()) return {};
  const trace::Scope scope(trace::spans::check_inputs);
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<InputFacts> mine;
  comm::run_collectively(world, [&] {
    for (auto i = static_cast<std::size_t>(world.rank()); i < files.size(); i += ranks) {
      mine.push_back(check_input(files[i]));
    }
  });
  const std::vector<std::vector<InputFacts>> all = all_gather_facts(world, mine);
  Inputs inputs;
  for (std::size_t i = 0; i < files.size(); ++i) {
    inputs[files[i].path] = all[i % ranks].at(i / ranks);
  }
  for (std::size_t i = 0; i < job.clip_count(); ++i) {
    const ClipRequest request = job.request(i);
    const auto check = [&](const InputFile& file, const std::string& expected) {
      if (file.kind == InputKind::none || expected.empty()) return;
      const std::string& found = inputs.at(file.path).hash;
      require(found == expected, Status::data,
              "{}: {} has the hash {}, expected {}: it is not the file that the clip was made from",
              file.where, file.path.string(), found, expected);
    };
    check(clip_input_file(job, request), *request.input_hash);
    check(clip_last_image(job, request), *request.last_image_hash);
  }
  return inputs;
}

std::vector<std::vector<InputFacts>> all_gather_facts(const comm::Group& world,
                                                      const std::vector<InputFacts>& mine) {
  struct Numbers {
    std::int64_t frames, height, width;
    double fps, begin, distance;
  };
  std::vector<Numbers> own_numbers;
  std::vector<std::string> own_hashes, own_states;
  std::vector<std::int32_t> own_times;  // of each, how many and which
  for (const InputFacts& facts : mine) {
    own_numbers.push_back(
        {facts.frames, facts.height, facts.width, facts.fps, facts.begin, facts.distance});
    own_hashes.push_back(facts.hash);
    own_states.push_back(facts.state);
    own_times.push_back(static_cast<std::int32_t>(facts.times.size()));
    own_times.insert(own_times.end(), facts.times.begin(), facts.times.end());
  }
  const auto numbers = comm::all_gather_values(world, own_numbers);
  const auto hashes = comm::all_gather_texts(world, own_hashes);
  const auto states = comm::all_gather_texts(world, own_states);
  const auto times = comm::all_gather_values(world, own_times);
  std::vector<std::vector<InputFacts>> all(numbers.size());
  for (std::size_t r = 0; r < numbers.size(); ++r) {
    auto next = times[r].begin();
    for (std::size_t i = 0; i < numbers[r].size(); ++i) {
      const auto& [frames, height, width, fps, begin, distance] = numbers[r][i];
      const auto first = next + 1, end = first + *next;
      next = end;
      all[r].push_back({frames,
                        height,
                        width,
                        fps,
                        hashes[r].at(i),
                        states[r].at(i),
                        {first, end},
                        begin,
                        distance});
    }
  }
  return all;
}

namespace {

// Frame i of a video at its mean rate.
std::int64_t even_frame(const InputFacts& facts, std::int64_t i) {
  if (facts.times.empty() || facts.fps <= 0) return i;
  return std::min(facts.frames - 1,
                  media::nearest_frame(facts.times, 1e3 * static_cast<double>(i) / facts.fps));
}

}  // namespace

Tensor read_pixels(const ClipInput& input, const Inputs& inputs, const VideoSize& size,
                   const Box& box) {
  Tensor pixels = Tensor::zeros(box.extent, input.pixel_type());
  if (box.empty()) return pixels;
  const auto read = [&](const InputFile& file, std::int64_t count, std::int64_t first) {
    const InputFacts& facts = inputs.at(file.path);
    std::vector<std::int64_t> frames;
    for (std::int64_t i = 0; i < count; ++i) frames.push_back(even_frame(facts, i));
    const auto take = [&](std::int64_t place, std::int64_t places, const Tensor& found) {
      const bool same = found.shape(0) == size.height && found.shape(1) == size.width;
      Tensor resized = same ? found : media::resize_lanczos(found, size.height, size.width);
      if (pixels.dtype() != resized.dtype()) resized = scaled_pixels(resized, pixels.dtype());
      copy_frame(resized, 0, 0, first + place, places, pixels, box);
    };
    read_input_frames(file, facts, frames, take);
  };
  read(input.file, input.frames, 0);
  if (input.ends_with_image()) read(input.last, 1, input.encoded_frames - 1);
  return pixels;
}

void copy_frame(const Tensor& frame, std::int64_t row, std::int64_t column, std::int64_t first,
                std::int64_t count, Tensor& pixels, const Box& box) {
  Box part = box;
  part.extent[0] = 1;
  for (std::int64_t i = first; i < first + count; ++i) {
    part.offset[0] = i;
    copy_box(part, frame, {{i, row, column, 0}, {1, frame.shape(0), frame.shape(1), 3}}, pixels,
             box);
  }
}

std::int64_t reading_bytes(const ClipInput& input, const InputFacts& facts, const VideoSize& size) {
  // Resizing along rows, then along columns, and scaled values; then the frames of the clip.
  const std::int64_t value = size_of(input.pixel_type()), scaled = value > 1 ? value : 0;
  return decoding_bytes(input.file) * facts.height * facts.width +
         3 * size.width *
             (facts.height + size.height * (1 + scaled + value * input.encoded_frames));
}

// As transformers' CLIPImageProcessor.
Tensor vision_pixels(const Tensor& image, const VisionPixels& to) {
  Tensor pixels = Tensor::empty(to.shape(), DType::float32);
  const std::int64_t height = image.shape(0), width = image.shape(1);
  const auto [shorter, longer] = std::minmax(height, width);
  const auto resized_longer = static_cast<std::int64_t>(static_cast<double>(to.edge * longer) /
                                                        static_cast<double>(shorter));
  const Tensor resized = width <= height ? media::resize_bicubic(image, resized_longer, to.edge)
                                         : media::resize_bicubic(image, to.edge, resized_longer);
  const std::int64_t top = (resized.shape(0) - to.size) / 2,
                     left = (resized.shape(1) - to.size) / 2;
  for (std::int64_t i = 0; i < pixels.numel(); ++i) {
    const std::int64_t column = i % to.size, row = i / to.size % to.size,
                       channel = i / (to.size * to.size);
    const std::int64_t at = ((top + row) * resized.shape(1) + left + column) * 3 + channel;
    const auto c = static_cast<std::size_t>(channel);
    const auto value = static_cast<float>(double(resized.data<std::uint8_t>()[at]) * to.factor);
    pixels.data<float>()[i] = (value - to.mean[c]) / to.deviation[c];
  }
  return pixels;
}

Tensor read_vision_pixels(const InputFile& file, const InputFacts& facts, const VisionPixels& to) {
  Tensor pixels;
  read_input_frames(file, facts, {0}, [&](std::int64_t, std::int64_t, const Tensor& image) {
    pixels = vision_pixels(image, to);
  });
  return pixels;
}

}  // namespace reelmesh
