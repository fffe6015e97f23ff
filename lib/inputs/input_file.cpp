#include "inputs/input_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_state.hpp"
#include "base/hash.hpp"
#include "base/number.hpp"
#include "media/image.hpp"
#include "media/video.hpp"
#include "sampler/clip_settings.hpp"
#include "store/saved_video.hpp"
#include "weights/regular_file.hpp"

namespace reelmesh {
namespace {

constexpr char frame_mark = '@';

// Where the pixels of an input are: of a frame its video.
InputFile source_of(const InputFile& file) {
  if (!file.frame) return file;
  const std::string text = file.path.string();
  return {InputKind::video, text.substr(0, text.rfind(frame_mark)), file.where};
}

// The number of a frame in a video of so many frames.
std::int64_t number_of_frame(const InputFile& file, std::int64_t frames) {
  const std::int64_t number = *file.frame < 0 ? frames + *file.frame : *file.frame;
  require(number >= 0 && number < frames, Status::data,
          "{}: {}: found a video of {} frames, expected one with this frame", file.where,
          file.path.string(), frames);
  return number;
}

// What is known of a frame, by the facts of its video.
InputFacts facts_of_frame(const InputFile& file, InputFacts facts) {
  number_of_frame(file, facts.frames);
  facts.fps = 0;
  return facts;
}

// The file of the earlier job's clip that an input stands for.
std::optional<std::filesystem::path> saved_clip(const InputFile& input) {
  const InputFile file = source_of(input);
  return file.kind == InputKind::video ? named_clip_file(file.path) : std::nullopt;
}

SavedVideo open_clip(const InputFile& file, const std::filesystem::path& clip) {
  return SavedVideo::open(clip, file.where, media::max_video_frames, media::max_image_pixels);
}

// 0 if sample.fps may not have this value.
double usable_rate(double fps) {
  constexpr const auto& limits = setting_description(&ClipSettings::fps).permitted;
  return fps >= limits.min && fps <= limits.max ? fps : 0;
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
  if (file.frame) hash.add(*file.frame);
  in.require_unchanged();
  return hash.hex();
}

// From the values of a cache; none if they are not those of a file.
std::optional<InputFacts> remembered_facts(const nlohmann::json& values) {
  if (!values.is_object()) return {};
  try {
    const InputFacts facts{values.at("frames"), values.at("height"), values.at("width"),
                           values.at("fps"),    values.at("hash"),   {},
                           values.at("times"),  values.at("begin"),  values.at("distance")};
    const auto times = std::ssize(facts.times);
    const bool possible = facts.frames > 0 && (times == 0 || times == facts.frames) &&
                          std::ranges::is_sorted(facts.times) && facts.height > 0 &&
                          facts.width > 0 &&
                          (facts.fps == 0 || facts.fps == usable_rate(facts.fps)) &&
                          facts.hash.size() == Hash::digits;
    return possible ? std::optional(facts) : std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

InputFacts facts_of_video(const media::VideoFacts& facts) {
  return {facts.frames, facts.height, facts.width, usable_rate(facts.fps), {},
          {},           facts.times,  facts.begin, facts.distance};
}

// Without hash and state. All pixels are decoded.
InputFacts decoded_facts(const InputFile& file) {
  if (file.frame) return facts_of_frame(file, decoded_facts(source_of(file)));
  if (file.kind == InputKind::image) {
    const Tensor pixels = media::read_image(file.path, file.where);
    return {.height = pixels.shape(0), .width = pixels.shape(1)};
  }
  if (const auto clip = saved_clip(file)) open_clip(file, *clip).check();
  return probe_input(file);  // decodes all frames, unless it is a clip of an earlier job
}

// Decodes these frames, in ascending order. all: frames of the video.
void read_frames(const InputFile& file, std::int64_t all, const std::vector<std::int64_t>& frames,
                 const std::function<void(std::int64_t, const Tensor&)>& consume,
                 const std::optional<media::FramePlace>& first = {}) {
  if (file.frame) {
    const InputFile video = source_of(file);
    const std::int64_t number = number_of_frame(file, all);
    return read_frames(video, all, {number},
                       [&](std::int64_t, const Tensor& pixels) { consume(0, pixels); });
  }
  if (file.kind == InputKind::image) {
    expect(frames == std::vector<std::int64_t>{0}, "frames {} of an image", frames);
    return consume(0, media::read_image(file.path, file.where));
  }
  const auto clip = saved_clip(file);
  if (!clip) return media::read_video_frames(file.path, file.where, frames, consume, first);
  const SavedVideo video = open_clip(file, *clip);
  require(frames.empty() || video.frames() > frames.back(), Status::data,
          "{}: {}: found {} frames, expected {}", file.where, clip->string(), video.frames(),
          frames.back() + 1);
  for (const std::int64_t frame : frames) consume(frame, video.read(frame));
}

}  // namespace

const char* name_of(InputKind kind) {
  return kind == InputKind::image ? "image" : kind == InputKind::video ? "video" : "none";
}

InputFile image_file(const std::filesystem::path& given, const std::string& where) {
  InputFile file{InputKind::image, given, where};
  const std::string text = given.string();
  const std::size_t mark = text.rfind(frame_mark);
  std::error_code unreadable;
  if (mark == text.npos || std::filesystem::exists(given, unreadable)) return file;
  const std::string frame = text.substr(mark + 1);
  file.frame = frame == "last" ? std::optional<std::int64_t>(-1) : read_number<std::int64_t>(frame);
  return file;
}

std::filesystem::path opened_path(const InputFile& file) {
  return saved_clip(file).value_or(source_of(file).path);
}

InputFacts probe_input(const InputFile& file) {
  if (file.frame) return facts_of_frame(file, probe_input(source_of(file)));
  if (file.kind == InputKind::image) {
    const media::ImageSize size = media::image_size(file.path, file.where);
    return {.height = size.height, .width = size.width};
  }
  if (const auto clip = saved_clip(file)) {
    const SavedVideo video = open_clip(file, *clip);
    return {video.frames(), video.height(), video.width(), usable_rate(video.fps()), {}};
  }
  return facts_of_video(media::video_facts(file.path, file.where));
}

namespace {

InputFacts with_hash(const InputFile& file, const std::function<InputFacts()>& find) {
  const FileState state = file_state(opened_path(file));
  InputFacts facts = find();
  facts.hash = hash_of_file(file);
  require_unchanged(name_for_messages(file), state, file_state(opened_path(file)));
  facts.state = state.text();
  return facts;
}

// Those of index_input() that are not known.
InputFacts indexed_facts(const InputFile& file) {
  const bool is_video = file.kind == InputKind::video && !saved_clip(file);
  return with_hash(file, [&] {
    return is_video ? facts_of_video(media::video_index(file.path, file.where))
                    : decoded_facts(file);
  });
}

constexpr const char* decoded_frames = "decoded";  // the first and the last of each span

}  // namespace

InputFacts check_input(const InputFile& file) {
  return with_hash(file, [&] { return decoded_facts(file); });
}

FileCache input_cache(const std::filesystem::path& folder, std::chrono::milliseconds settling) {
  return {"facts of images and videos, 3", folder, settling};
}

InputFacts index_input(const InputFile& file, const FileCache& known) {
  if (saved_clip(file)) return check_input(file);
  std::optional<RegularFile> opened;
  std::string sample;
  try {
    opened = RegularFile::open(file.path);
    sample = sample_hash(*opened);
  } catch (const Error&) {
    return indexed_facts(file);  // whose messages name the option
  }
  if (const auto found = remembered_facts(known.find(*opened, sample))) return *found;
  InputFacts facts = indexed_facts(file);
  if (facts.state != opened->state().text()) return facts;
  try {
    known.store(*opened, sample,
                {{"frames", facts.frames},
                 {"height", facts.height},
                 {"width", facts.width},
                 {"fps", facts.fps},
                 {"hash", facts.hash},
                 {"times", facts.times},
                 {"begin", facts.begin},
                 {"distance", facts.distance}});
  } catch (const std::exception&) {
    // It is found again by the next job.
  }
  return facts;
}

std::optional<InputFacts> facts_of_missing(const InputFile& file, const FileCache& known) {
  return remembered_facts(known.find_missing(file.path));
}

std::vector<std::string> check_frames(const InputFile& file, const std::vector<FrameSpan>& spans,
                                      const FileCache& known) {
  std::vector<std::string> problems(spans.size());
  if (file.kind != InputKind::video || saved_clip(file)) return problems;  // all were decoded
  std::vector<std::int64_t> decoded;
  nlohmann::json values;
  std::optional<RegularFile> opened;
  std::string sample;
  try {
    opened = RegularFile::open(file.path);
    sample = sample_hash(*opened);
    values = known.find(*opened, sample);
    if (values.is_object() && values.contains(decoded_frames)) {
      decoded = values.at(decoded_frames).get<std::vector<std::int64_t>>();
    }
  } catch (const std::exception&) {
    decoded.clear();  // they are decoded again
  }
  const std::size_t before = decoded.size();
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const FrameSpan& span = spans[i];
    bool is_known = false;
    for (std::size_t at = 0; at + 1 < decoded.size(); at += 2) {
      is_known = is_known || (decoded[at] <= span.first && span.last <= decoded[at + 1]);
    }
    if (is_known) continue;
    try {
      std::vector<std::int64_t> ends{span.first};
      if (span.last > span.first) ends.push_back(span.last);
      read_frames(
          file, 0, ends, [](std::int64_t, const Tensor&) {}, span.place);
      decoded.insert(decoded.end(), {span.first, span.last});
    } catch (const Error& error) {
      if (error.status() != Status::data) throw;
      problems[i] = error.what();
    }
  }
  if (decoded.size() == before || !values.is_object()) return problems;
  values[decoded_frames] = decoded;
  try {
    known.store(*opened, sample, values);
  } catch (const std::exception&) {
    // They are decoded again by the next job.
  }
  return problems;
}

void read_input_frames(const InputFile& file, const InputFacts& facts,
                       const std::vector<std::int64_t>& frames, const ConsumeFrame& consume,
                       const std::optional<media::FramePlace>& first) {
  const FileState state = file_state(opened_path(file));
  // Of the last file that this thread hashed, as a video may have many clips.
  thread_local std::string hashed, hash;
  if (state.text() != facts.state) {  // changed, or that of a host with files of its own
    const std::string name = fmt::format("{} {}", opened_path(file).string(), state.text());
    if (name != hashed) hash = hash_of_file(file);
    hashed = name;
    require(hash == facts.hash, Status::data,
            "{}: found the hash {}, expected {}, which it had when it was checked: the file was "
            "changed or replaced, or differs between hosts",
            name_for_messages(file), hash, facts.hash);
  }
  std::vector<std::int64_t> distinct;
  std::ranges::unique_copy(frames, std::back_inserter(distinct));
  const auto consume_all = [&](std::int64_t frame, const Tensor& pixels) {
    const auto same = std::ranges::equal_range(frames, frame);
    consume(same.begin() - frames.begin(), std::ssize(same), pixels);
  };
  read_frames(file, facts.frames, distinct, consume_all, first);
  require_unchanged(name_for_messages(file), state, file_state(opened_path(file)));
}

std::int64_t decoding_bytes(const InputFile& file) {
  if (file.frame) return decoding_bytes(source_of(file));
  if (file.kind == InputKind::image) return 9;  // coefficients of a progressive JPEG: 6
  if (saved_clip(file)) return 6;
  return 32;  // H.264 keeps up to 16 earlier frames of 1.5 bytes
}

}  // namespace reelmesh
