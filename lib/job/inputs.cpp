#include "job/inputs.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/file_state.hpp"
#include "base/hash.hpp"
#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "layout/relayout.hpp"
#include "media/image.hpp"
#include "media/video.hpp"
#include "store/saved_video.hpp"
#include "weights/regular_file.hpp"

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

// The file of the earlier job's clip that an input stands for.
std::optional<std::filesystem::path> saved_clip(const InputFile& file) {
  return file.kind == InputKind::video ? named_clip_file(file.path) : std::nullopt;
}

SavedVideo open_clip(const InputFile& file, const std::filesystem::path& clip) {
  return SavedVideo::open(clip, file.where, media::max_video_frames, media::max_image_pixels);
}

// 0 if sample.fps may not have this value.
double usable_rate(double fps) {
  constexpr const auto& limits = setting_description(&ClipSettings::fps).permitted;
  return fps >= limits.least && fps <= limits.most ? fps : 0;
}

InputFacts read_facts(const InputFile& file) {
  if (file.kind == InputKind::image) {
    const media::ImageSize size = media::image_size(file.path, file.where);
    return {.height = size.height, .width = size.width};
  }
  if (const auto clip = saved_clip(file)) {
    const SavedVideo video = open_clip(file, *clip);
    return {video.frames(), video.height(), video.width(), usable_rate(video.fps()), {}};
  }
  const media::VideoFacts facts = media::video_facts(file.path, file.where);
  return {facts.frames, facts.height, facts.width, usable_rate(facts.fps), {}};
}

// That is opened: the input itself, or the clip that it stands for.
std::filesystem::path opened_path(const InputFile& file) {
  return saved_clip(file).value_or(file.path);
}

std::string name_for_messages(const InputFile& file) {
  return fmt::format("{}: {}", file.where, opened_path(file).string());
}

std::string hash_of_file(const InputFile& file) {
  const RegularFile in = RegularFile::open(opened_path(file));
  Hash hash;
  std::string block(std::size_t{1} << 20, '\0');
  for (std::int64_t done = 0; done < in.size(); done += std::ssize(block)) {
    const std::int64_t count = std::min(std::ssize(block), in.size() - done);
    in.read_part(done, count, block.data());
    hash.add_bytes({block.data(), static_cast<std::size_t>(count)});
  }
  in.require_unchanged();
  return hash.hex();
}

// From the values of a cache; none if they are not those of a file.
std::optional<InputFacts> remembered_facts(const nlohmann::json& values) {
  if (!values.is_object()) return {};
  try {
    const InputFacts facts{values.at("frames"), values.at("height"), values.at("width"),
                           values.at("fps"),    values.at("hash"),   {}};
    const bool possible = facts.frames > 0 && facts.height > 0 && facts.width > 0 &&
                          (facts.fps == 0 || facts.fps == usable_rate(facts.fps)) &&
                          facts.hash.size() == Hash::digits;
    return possible ? std::optional(facts) : std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

// Decodes these frames, in ascending order.
void read_frames(const InputFile& file, const std::vector<std::int64_t>& frames,
                 const std::function<void(std::int64_t, const Tensor&)>& consume) {
  if (file.kind == InputKind::image) {
    expect(frames == std::vector<std::int64_t>{0}, "frames {} of an image", frames);
    return consume(0, media::read_image(file.path, file.where));
  }
  const auto clip = saved_clip(file);
  if (!clip) return media::read_video_frames(file.path, file.where, frames, consume);
  const SavedVideo video = open_clip(file, *clip);
  require(frames.empty() || video.frames() > frames.back(), Status::data,
          "{}: {}: found {} frames, expected {}", file.where, clip->string(), video.frames(),
          frames.back() + 1);
  for (const std::int64_t frame : frames) consume(frame, video.read(frame));
}

// Bytes for each pixel of a frame while it is decoded, with the frame.
std::int64_t decoding_bytes(const InputFile& file) {
  if (file.kind == InputKind::image) return 9;  // coefficients of a progressive JPEG: 6
  if (saved_clip(file)) return 6;
  return 32;  // H.264 keeps up to 16 earlier frames of 1.5 bytes
}

}  // namespace

const char* name_of(InputKind kind) {
  return kind == InputKind::image ? "image" : kind == InputKind::video ? "video" : "none";
}

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
    paths.push_back({folder.option, job.model.*folder.path, PathUse::input});
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
  for (const InputFile& file : distinct_files(job)) inputs[file.path] = read_facts(file);
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

InputFacts check_input(const InputFile& file) {
  const FileState state = file_state(opened_path(file));
  InputFacts facts;
  if (file.kind == InputKind::image) {
    const Tensor pixels = media::read_image(file.path, file.where);
    facts = {.height = pixels.shape(0), .width = pixels.shape(1)};
  } else {
    facts = read_facts(file);  // decodes all frames, unless it is a clip of an earlier job
    if (const auto clip = saved_clip(file)) open_clip(file, *clip).check();
  }
  facts.hash = hash_of_file(file);
  require_unchanged(name_for_messages(file), state, file_state(opened_path(file)));
  facts.state = state.text();
  return facts;
}

FileCache input_cache(const std::filesystem::path& folder, std::chrono::milliseconds settling) {
  return {"facts of images and videos, 1", folder, settling};
}

InputFacts check_input(const InputFile& file, const FileCache& known) {
  if (saved_clip(file)) return check_input(file);
  std::optional<RegularFile> opened;
  std::string sample;
  try {
    opened = RegularFile::open(file.path);
    sample = sample_hash(*opened);
  } catch (const Error&) {
    return check_input(file);  // whose messages name the option
  }
  if (const auto found = remembered_facts(known.find(*opened, sample))) return *found;
  InputFacts facts = check_input(file);
  if (facts.state != opened->state().text()) return facts;
  try {
    known.store(*opened, sample,
                {{"frames", facts.frames},
                 {"height", facts.height},
                 {"width", facts.width},
                 {"fps", facts.fps},
                 {"hash", facts.hash}});
  } catch (const std::exception&) {
    // It is found again by the next job.
  }
  return facts;
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

void read_input_frames(
    const InputFile& file, const InputFacts& facts, const std::vector<std::int64_t>& frames,
    const std::function<void(std::int64_t frame, const Tensor& pixels)>& consume) {
  const FileState state = file_state(opened_path(file));
  if (state.text() != facts.state) {  // changed, or that of a host with files of its own
    const std::string hash = hash_of_file(file);
    require(hash == facts.hash, Status::data,
            "{}: found the hash {}, expected {}, which it had when it was checked: the file was "
            "changed or replaced, or differs between hosts",
            name_for_messages(file), hash, facts.hash);
  }
  read_frames(file, frames, consume);
  require_unchanged(name_for_messages(file), state, file_state(opened_path(file)));
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
