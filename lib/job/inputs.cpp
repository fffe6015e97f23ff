#include "job/inputs.hpp"

#include <numeric>

#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "layout/relayout.hpp"
#include "media/image.hpp"

namespace reelmesh {
namespace {

std::vector<InputFile> distinct_files(const Job& job) {
  std::vector<InputFile> files;
  std::map<std::filesystem::path, InputKind> seen;
  for (std::size_t i = 0; i < job.clip_count(); ++i) {
    InputFile file = clip_input_file(job, job.request(i));
    if (file.kind == InputKind::none) continue;
    const auto [known, is_new] = seen.emplace(file.path, file.kind);
    require(known->second == file.kind, Status::usage,
            "{}: found '{}', which another clip gives as {}, expected one kind of file", file.where,
            file.path.string(), name_of(known->second));
    if (is_new) files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

InputFile clip_input_file(const Job& job, const ClipRequest& request) {
  const bool own = !request.image.empty() || !request.video.empty();
  const std::filesystem::path &image = own ? request.image : job.image,
                              &video = own ? request.video : job.video;
  const auto where = [&](InputKind kind) {
    return own && !request.where.empty() ? fmt::format("{}: {}", request.where, name_of(kind))
                                         : fmt::format("prompt.{}", name_of(kind));
  };
  require(image.empty() || video.empty(), Status::usage,
          "{}: found '{}', and the video '{}', expected an image or a video",
          where(InputKind::image), image.string(), video.string());
  if (!image.empty()) return {InputKind::image, image, where(InputKind::image)};
  if (!video.empty()) return {InputKind::video, video, where(InputKind::video)};
  return {};
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
    const InputFile file = clip_input_file(job, request);
    if (file.kind == InputKind::none || request.input_hash.empty()) continue;
    const std::string& found = inputs.at(file.path).hash;
    require(found == request.input_hash, Status::data,
            "{}: {} has the hash {}, expected {}: it is not the file that the clip was made from",
            file.where, file.path.string(), found, request.input_hash);
  }
  return inputs;
}

std::vector<std::vector<InputFacts>> all_gather_facts(const comm::Group& world,
                                                      const std::vector<InputFacts>& mine) {
  struct Numbers {
    std::int64_t frames, height, width;
    double fps;
  };
  std::vector<Numbers> own_numbers;
  std::vector<std::string> own_hashes, own_states;
  for (const InputFacts& facts : mine) {
    own_numbers.push_back({facts.frames, facts.height, facts.width, facts.fps});
    own_hashes.push_back(facts.hash);
    own_states.push_back(facts.state);
  }
  const auto numbers = comm::all_gather_values(world, own_numbers);
  const auto hashes = comm::all_gather_texts(world, own_hashes);
  const auto states = comm::all_gather_texts(world, own_states);
  std::vector<std::vector<InputFacts>> all(numbers.size());
  for (std::size_t r = 0; r < numbers.size(); ++r) {
    for (std::size_t i = 0; i < numbers[r].size(); ++i) {
      const auto& [frames, height, width, fps] = numbers[r][i];
      all[r].push_back({frames, height, width, fps, hashes[r].at(i), states[r].at(i)});
    }
  }
  return all;
}

Tensor read_pixels(const ClipInput& input, const InputFacts& facts, const VideoSize& size,
                   const Box& box) {
  Tensor pixels = Tensor::empty(box.extent, DType::uint8);
  if (box.empty()) return pixels;
  std::vector<std::int64_t> frames(static_cast<std::size_t>(input.frames));
  std::iota(frames.begin(), frames.end(), 0);
  read_input_frames(input.file, facts, frames, [&](std::int64_t frame, const Tensor& found) {
    const bool same = found.shape(0) == size.height && found.shape(1) == size.width;
    const Tensor resized = same ? found : media::resize_lanczos(found, size.height, size.width);
    Box part = box;
    part.offset[0] = frame;
    part.extent[0] = 1;
    copy_box(part, resized, {{frame, 0, 0, 0}, {1, size.height, size.width, 3}}, pixels, box);
  });
  return pixels;
}

std::int64_t reading_bytes(const ClipInput& input, const InputFacts& facts, const VideoSize& size) {
  // Resizing along rows, then along columns; then the frames of the clip.
  return decoding_bytes(input.file) * facts.height * facts.width +
         3 * size.width * (facts.height + size.height * (1 + input.frames));
}

}  // namespace reelmesh
