#pragma once
// The frames of a video file, one at a time.
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "media/input_file.hpp"
#include "media/libav.hpp"
#include "media/video.hpp"

namespace reelmesh::media {

namespace detail {
struct ReleaseIo {
  void operator()(AVIOContext* io) const;
};
struct ReleaseFormat {
  void operator()(AVFormatContext* format) const;
};
struct ReleaseCodec {
  void operator()(AVCodecContext* codec) const;
};
struct ReleasePacket {
  void operator()(AVPacket* packet) const;
};
struct ReleaseFrame {
  void operator()(AVFrame* frame) const;
};
}  // namespace detail

/// The first video stream of a file. Only this file is read; other streams are passed over. Throws
/// as video_facts.
class VideoStream {
 public:
  enum class Contents { video, image };

  /// max_frames: as many may be read.
  VideoStream(const std::filesystem::path& file, const std::string& where,
              std::int64_t max_frames = max_video_frames);
  /// contents: image, of the formats of decode_with_libav(), whose first frame is the image.
  VideoStream(InputFile file, Contents contents);
  VideoStream(const VideoStream&) = delete;  // io_ refers to it
  VideoStream& operator=(const VideoStream&) = delete;

  /// The next frame in the order in which they are shown, valid until the next call; null at the
  /// end. All frames have the same size and format.
  const AVFrame* next();

  /// When the last frame of next() is shown; none if the file does not say.
  std::optional<double> milliseconds() const;

  /// In place of next(): when the frame of the next packet is shown, in milliseconds, in the order
  /// of the file, without decoding it. `none` if the file does not say, or has packets that are not
  /// shown; `end` after the last one.
  enum class Packet { shown, none, end };
  Packet next_packet(double& milliseconds);

  /// The next frame is one from which the decoder can begin, at this time or before, as far as the
  /// file's index tells. Whether there is one.
  bool seek_to(double milliseconds);

  /// Frames in a second, average; 0 if the file does not say.
  double fps() const;
  /// How frames are turned before they are shown, 1…8 as in EXIF (orientation.hpp).
  int orientation() const { return orientation_; }
  const std::string& name() const { return file_.name; }
  const InputFile& file() const { return file_; }
  Contents contents() const { return contents_; }

 private:
  static int read(void* self, std::uint8_t* buffer, int size);
  static std::int64_t seek(void* self, std::int64_t offset, int whence);
  // FFmpeg's names of the demuxers and decoders for these contents.
  std::span<const std::string_view> allowed_containers() const;
  std::span<const std::string_view> allowed_decoders() const;
  void open_container();
  void open_decoder();
  int find_orientation() const;
  std::optional<double> milliseconds_of(std::int64_t time) const;
  bool read_packet();
  bool send_packet();
  void check_frame();
  [[noreturn]] void damaged(int status) const;

  const Libav& av_ = libav();
  InputFile file_;
  Contents contents_;
  std::int64_t position_ = 0;
  int read_error_ = 0;  // errno
  std::unique_ptr<AVIOContext, detail::ReleaseIo> io_;
  std::unique_ptr<AVFormatContext, detail::ReleaseFormat> format_;
  AVStream* stream_ = nullptr;
  std::unique_ptr<AVCodecContext, detail::ReleaseCodec> decoder_;
  std::unique_ptr<AVPacket, detail::ReleasePacket> packet_;
  std::unique_ptr<AVFrame, detail::ReleaseFrame> frame_;
  int orientation_ = 1;
  std::int64_t frames_ = 0, max_frames_ = max_video_frames;
  int width_ = 0, height_ = 0, pixel_format_ = AV_PIX_FMT_NONE;
};

}  // namespace reelmesh::media
