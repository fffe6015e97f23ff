#include "media/video.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "media/decoders.hpp"
#include "media/orientation.hpp"
#include "media/video_stream.hpp"

namespace reelmesh::media {
namespace {

struct ReleaseScale {
  void operator()(SwsContext* context) const { libav().sws_freeContext(context); }
};

/// Converts frames of one size and format to RGB: those of videos as the command ffmpeg does; of
/// images more exactly, with the colours between the pixels, as libwebp and libavif.
class RgbConverter {
 public:
  RgbConverter(const VideoStream& video, const AVFrame& frame) : name_(video.name()) {
    const auto format = static_cast<AVPixelFormat>(frame.format);
    require(av_.sws_isSupportedInput(format) > 0, Status::data,
            "{}: frames of {} cannot be converted to RGB", name_, av_.av_get_pix_fmt_name(format));
    context_.reset(av_.sws_alloc_context());
    rgb_.reset(av_.av_frame_alloc());
    require(context_ && rgb_, Status::unavailable, "{}: not enough memory to read it", name_);
    rgb_->width = frame.width;
    rgb_->height = frame.height;
    rgb_->format = AV_PIX_FMT_RGB24;
    require(av_.av_frame_get_buffer(rgb_.get(), 0) >= 0, Status::unavailable,
            "{}: not enough memory for a frame", name_);
    const auto set = [&](const char* key, std::int64_t value) {
      require(av_.av_opt_set_int(context_.get(), key, value, 0) >= 0, Status::internal,
              "libswscale does not take {} = {}", key, value);
    };
    set("srcw", frame.width);
    set("srch", frame.height);
    set("src_format", format);
    set("dstw", frame.width);
    set("dsth", frame.height);
    set("dst_format", AV_PIX_FMT_RGB24);
    const bool is_image = video.contents() == VideoStream::Contents::image;
    set("sws_flags", SWS_BICUBIC | (is_image ? SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT : 0));
    // Where MPEG-2 and its successors place colours between rows.
    if (format == AV_PIX_FMT_YUV420P) set("src_v_chr_pos", 128);
    if (format == AV_PIX_FMT_YUV420P && is_image) set("src_h_chr_pos", 128);
    require(av_.sws_init_context(context_.get(), nullptr, nullptr) >= 0, Status::data,
            "{}: frames of {} cannot be converted to RGB", name_, av_.av_get_pix_fmt_name(format));
  }

  /// → uint8 [row, column, 3], as stored
  Tensor convert(const AVFrame& frame) {
    set_colours(frame);
    const int rows = av_.sws_scale(context_.get(), frame.data, frame.linesize, 0, frame.height,
                                   rgb_->data, rgb_->linesize);
    require(rows == frame.height, Status::data, "{}: a frame cannot be converted to RGB", name_);
    Tensor pixels = Tensor::empty({frame.height, frame.width, 3}, DType::uint8);
    const std::int64_t bytes = 3 * std::int64_t{frame.width};
    for (std::int64_t row = 0; row < frame.height; ++row) {
      std::memcpy(pixels.data<std::uint8_t>() + row * bytes,
                  rgb_->data[0] + row * rgb_->linesize[0], static_cast<std::size_t>(bytes));
    }
    return pixels;
  }

 private:
  // The matrix and range that the frame says; BT.601, limited, if it says nothing.
  void set_colours(const AVFrame& frame) {
    int *matrix = nullptr, *rgb_matrix = nullptr;
    int full = 0, rgb_full = 0, brightness = 0, contrast = 0, saturation = 0;
    if (av_.sws_getColorspaceDetails(context_.get(), &matrix, &full, &rgb_matrix, &rgb_full,
                                     &brightness, &contrast, &saturation) < 0) {
      return;  // neither is YUV
    }
    const bool known =
        frame.colorspace >= AVCOL_SPC_BT709 && frame.colorspace <= AVCOL_SPC_BT2020_CL &&
        frame.colorspace != AVCOL_SPC_YCGCO && frame.colorspace != AVCOL_SPC_UNSPECIFIED;
    const int* coefficients =
        av_.sws_getCoefficients(known ? static_cast<int>(frame.colorspace) : AVCOL_SPC_BT470BG);
    if (frame.color_range != AVCOL_RANGE_UNSPECIFIED) {
      full = frame.color_range == AVCOL_RANGE_JPEG ? 1 : 0;
    }
    av_.sws_setColorspaceDetails(context_.get(), coefficients, full, coefficients, rgb_full,
                                 brightness, contrast, saturation);
  }

  const Libav& av_ = libav();
  std::string name_;
  std::unique_ptr<SwsContext, ReleaseScale> context_;
  std::unique_ptr<AVFrame, detail::ReleaseFrame> rgb_;
};

}  // namespace

namespace {

// Of an image whose file has the structure of EXIF (TIFF) or parts of RIFF (WebP).
int orientation_of_image(const InputFile& file) {
  constexpr std::int64_t max = std::int64_t{64} << 20;
  std::rewind(file.stream.get());
  const std::string bytes = read_bytes(file, static_cast<std::size_t>(std::min(file.bytes, max)));
  if (!bytes.starts_with("RIFF")) return image_orientation(bytes, "");
  std::string_view exif, xmp, rest = bytes;
  rest.remove_prefix(std::min<std::size_t>(rest.size(), 12));  // RIFF, length, WEBP
  while (rest.size() >= 8) {
    std::size_t length = 0;
    for (int i = 3; i >= 0; --i) length = length << 8U | static_cast<unsigned char>(rest[4 + i]);
    const std::string_view name = rest.substr(0, 4), part = rest.substr(8, length);
    if (name == "EXIF") exif = part;
    if (name == "XMP ") xmp = part;
    rest.remove_prefix(std::min(rest.size(), 8 + length + length % 2));
  }
  return image_orientation(exif, xmp);
}

}  // namespace

ImageHeader decode_with_libav(InputFile file, Tensor* pixels) {
  VideoStream image(std::move(file), VideoStream::Contents::image);
  const AVFrame* frame = image.next();
  require(frame != nullptr, Status::data, "{}: damaged or truncated image: it has no pixels",
          image.name());
  RgbConverter converter(image, *frame);
  if (pixels != nullptr) *pixels = converter.convert(*frame);
  return {.stored = {.height = frame->height, .width = frame->width},
          .orientation = orientation_of_image(image.file())};
}

namespace {

// Whether times of frames, ascending, differ from those of an even rate by more than a quarter of
// the mean distance.
bool vary(const std::vector<std::int32_t>& times) {
  if (times.size() < 3) return false;
  const double distance = static_cast<double>(times.back()) / static_cast<double>(times.size() - 1);
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (std::abs(times[i] - static_cast<double>(i) * distance) > distance / 4 + 1) return true;
  }
  return false;
}

// times: in milliseconds, of all frames that have one.
void set_times(VideoFacts& facts, const std::vector<double>& times) {
  constexpr double max = std::numeric_limits<std::int32_t>::max();
  if (std::ssize(times) != facts.frames || !std::ranges::is_sorted(times) ||
      times.back() - times.front() >= max) {
    return;
  }
  for (const double time : times) {
    facts.times.push_back(static_cast<std::int32_t>(std::lround(time - times.front())));
  }
  if (facts.fps <= 0 || !vary(facts.times)) facts.times.clear();
}

void set_size(VideoFacts& facts, const VideoStream& video, const AVFrame& frame) {
  const RgbConverter converter(video, frame);  // whether its format can be converted
  facts.height = frame.height;
  facts.width = frame.width;
  if (exchanges_sides(video.orientation())) std::swap(facts.height, facts.width);
}

constexpr std::int64_t any_number = std::numeric_limits<std::int64_t>::max();

VideoFacts decoded_facts(const std::filesystem::path& file, const std::string& where,
                         std::int64_t max_frames) {
  VideoStream video(file, where, max_frames);
  VideoFacts facts{.fps = video.fps()};
  std::vector<double> times;  // as far as they are known
  while (const AVFrame* frame = video.next()) {
    if (const auto time = video.milliseconds()) times.push_back(*time);
    if (facts.frames++ == 0) set_size(facts, video, *frame);
  }
  require(facts.frames > 0, Status::data, "{}: the video has no frames", video.name());
  set_times(facts, times);
  return facts;
}

// When the frames of all packets are shown, ascending; empty unless that is known and differs.
std::vector<double> times_of_packets(const std::filesystem::path& file, const std::string& where,
                                     std::int64_t max_frames) {
  VideoStream video(file, where, max_frames);
  std::vector<double> times;
  for (;;) {
    double time = 0;
    switch (video.next_packet(time)) {
      case VideoStream::Packet::none:
        return {};
      case VideoStream::Packet::shown:
        times.push_back(time);
        break;
      case VideoStream::Packet::end:
        std::ranges::sort(times);
        return std::ranges::adjacent_find(times) == times.end() ? times : std::vector<double>();
    }
  }
}

}  // namespace

VideoFacts video_facts(const std::filesystem::path& file, const std::string& where) {
  return decoded_facts(file, where, max_video_frames);
}

VideoFacts video_index(const std::filesystem::path& file, const std::string& where) {
  constexpr std::size_t compared = 50;
  const std::vector<double> times = times_of_packets(file, where, any_number);
  VideoStream video(file, where, any_number);
  VideoFacts facts{.frames = std::ssize(times), .fps = video.fps()};
  // Packets may be parts of frames, or frames that are not shown.
  for (std::size_t i = 0; i < std::min(compared, times.size()); ++i) {
    const AVFrame* frame = video.next();
    if (frame == nullptr || video.milliseconds() != times[i])
      return decoded_facts(file, where, any_number);
    if (i == 0) set_size(facts, video, *frame);
  }
  if (times.empty()) return decoded_facts(file, where, any_number);
  set_times(facts, times);
  if (facts.fps <= 0 || facts.frames < 2) return facts;
  facts.begin = times.front();
  facts.distance = (times.back() - times.front()) / static_cast<double>(facts.frames - 1);
  return facts;
}

std::optional<FramePlace> frame_place(std::span<const std::int32_t> times, double begin,
                                      double distance, std::int64_t frame) {
  if (frame == 0 || distance <= 0) return std::nullopt;
  // Times of an even rate differ by a quarter of the distance from those (vary).
  if (times.empty())
    return FramePlace{frame, begin + static_cast<double>(frame) * distance, distance / 2};
  const auto i = static_cast<std::size_t>(frame);
  double nearest = times[i] - times[i - 1];
  if (i + 1 < times.size()) nearest = std::min<double>(nearest, times[i + 1] - times[i]);
  if (nearest <= 2) return std::nullopt;  // times are rounded
  return FramePlace{frame, begin + times[i], nearest / 2};
}

std::int64_t nearest_frame(std::span<const std::int32_t> times, double milliseconds) {
  const auto next = std::ranges::upper_bound(times, milliseconds);
  if (next == times.begin()) return 0;
  const double before = *(next - 1);
  const double after = next != times.end() ? double(*next) : 2 * before - *(next - 2);
  return next - times.begin() - (milliseconds - before < after - milliseconds ? 1 : 0);
}

void read_video(const std::filesystem::path& file, const std::string& where, std::int64_t count,
                const std::function<void(std::int64_t frame, const Tensor& pixels)>& consume) {
  std::vector<std::int64_t> frames(static_cast<std::size_t>(count));
  std::iota(frames.begin(), frames.end(), 0);
  read_video_frames(file, where, frames, consume);
}

namespace {

// A stream whose next frame is the one at a place, with that frame; none if it is not found from
// where the file's index says that decoding may begin.
std::unique_ptr<VideoStream> stream_at(const FramePlace& place, const std::filesystem::path& file,
                                       const std::string& where, const AVFrame*& frame) {
  constexpr double earlier = 3000;  // frames that come before in the file may be shown later
  for (const double back : {0.0, earlier}) {
    try {
      auto video = std::make_unique<VideoStream>(file, where, any_number);
      if (!video->seek_to(place.milliseconds - place.tolerance - back)) continue;
      for (bool before = true; before;) {
        frame = video->next();
        if (frame == nullptr) break;
        const auto time = video->milliseconds();
        if (!time) break;
        if (std::abs(*time - place.milliseconds) < place.tolerance) return video;
        before = *time < place.milliseconds;
      }
    } catch (const Error& error) {
      // Frames that refer to others before the place where decoding begins.
      if (error.status() != Status::data) throw;
    }
  }
  return nullptr;
}

}  // namespace

void read_video_frames(const std::filesystem::path& file, const std::string& where,
                       const std::vector<std::int64_t>& frames,
                       const std::function<void(std::int64_t frame, const Tensor& pixels)>& consume,
                       const std::optional<FramePlace>& first) {
  const AVFrame* frame = nullptr;
  std::unique_ptr<VideoStream> video;
  std::int64_t next = 0, before = -1;  // of the stream, of those that are wanted
  if (first && !frames.empty() && first->frame <= frames.front())
    video = stream_at(*first, file, where, frame);
  if (video) {
    next = first->frame + 1;
  } else {
    frame = nullptr;
    video = std::make_unique<VideoStream>(file, where, any_number);
  }
  std::unique_ptr<RgbConverter> converter;
  for (const std::int64_t wanted : frames) {
    expect(wanted > before && wanted >= next - 1, "frame {} of a video is wanted after frame {}",
           wanted, std::max(before, next - 1));
    before = wanted;
    for (; next <= wanted; ++next) {
      frame = video->next();
      require(frame != nullptr, Status::data, "{}: the video has {} frames, expected at least {}",
              video->name(), next, frames.back() + 1);
    }
    if (!converter) converter = std::make_unique<RgbConverter>(*video, *frame);
    consume(wanted, turned(converter->convert(*frame), video->orientation()));
  }
}

}  // namespace reelmesh::media
