#include "media/video_stream.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/file_kind.hpp"
#include "base/number.hpp"

namespace reelmesh::media {
namespace {

constexpr std::int64_t max_video_bytes = std::int64_t{16} << 30;

// FFmpeg's names of demuxers and decoders. What they read is widely used; those of playlists and of
// numbered images, which open other files, are not among them.
constexpr std::array<std::string_view, 6> containers{
    "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "avi", "mpegts", "ogg", "gif"};
constexpr std::array<std::string_view, 17> decoders{
    "h264", "hevc",  "vp8",    "vp9",      "libdav1d", "mpeg4",   "mpeg2video", "mpeg1video", "gif",
    "ffv1", "mjpeg", "prores", "rawvideo", "theora",   "huffyuv", "ffvhuff",    "png"};

// The same for images. AVIF is in the container of MP4.
constexpr std::array<std::string_view, 5> image_containers{"gif", "webp_pipe", "bmp_pipe",
                                                           "tiff_pipe", "mov,mp4,m4a,3gp,3g2,mj2"};
constexpr std::array<std::string_view, 5> image_decoders{"gif", "webp", "bmp", "tiff", "libdav1d"};

// The size of the buffer from which demuxers read.
constexpr int buffer_bytes = 1 << 16;

/// Options for a function of libav*.
class Options {
 public:
  ~Options() { libav().av_dict_free(&entries_); }
  Options() = default;
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  void set(const char* key, const std::string& value) {
    libav().av_dict_set(&entries_, key, value.c_str(), 0);
  }
  AVDictionary** entries() { return &entries_; }

 private:
  AVDictionary* entries_ = nullptr;
};

int open_no_other_file(AVFormatContext*, AVIOContext**, const char*, int, AVDictionary**) {
  return AVERROR(EPERM);
}

}  // namespace

namespace detail {

void ReleaseIo::operator()(AVIOContext* io) const {
  libav().av_freep(&io->buffer);
  libav().avio_context_free(&io);
}
void ReleaseFormat::operator()(AVFormatContext* format) const {
  libav().avformat_close_input(&format);
}
void ReleaseCodec::operator()(AVCodecContext* codec) const { libav().avcodec_free_context(&codec); }
void ReleasePacket::operator()(AVPacket* packet) const { libav().av_packet_free(&packet); }
void ReleaseFrame::operator()(AVFrame* frame) const { libav().av_frame_free(&frame); }

}  // namespace detail

VideoStream::VideoStream(const std::filesystem::path& file, const std::string& where,
                         std::int64_t max_frames)
    : VideoStream(open_input(file, where, max_video_bytes), Contents::video) {
  max_frames_ = max_frames;
  require(stream_->nb_frames <= max_frames, Status::data,
          "{}: the video has {} frames, expected at most {}", name(), stream_->nb_frames,
          max_frames);
}

VideoStream::VideoStream(InputFile file, Contents contents)
    : file_(std::move(file)), contents_(contents) {
  forget_libav_errors();
  packet_.reset(av_.av_packet_alloc());
  frame_.reset(av_.av_frame_alloc());
  auto* buffer = static_cast<unsigned char*>(av_.av_malloc(buffer_bytes));
  io_.reset(av_.avio_alloc_context(buffer, buffer_bytes, 0, this, read, nullptr, seek));
  if (!io_) av_.av_freep(&buffer);
  require(packet_ && frame_ && io_, Status::unavailable, "{}: not enough memory to read it",
          name());
  open_container();
  open_decoder();
  orientation_ = find_orientation();
}

int VideoStream::read(void* self, std::uint8_t* buffer, int size) {
  auto& video = *static_cast<VideoStream*>(self);
  const ssize_t got = ::pread(::fileno(video.file_.stream.get()), buffer,
                              static_cast<std::size_t>(size), video.position_);
  if (got < 0) {
    video.read_error_ = errno;
    return AVERROR(errno);
  }
  video.position_ += got;
  return got == 0 ? AVERROR_EOF : static_cast<int>(got);
}

std::int64_t VideoStream::seek(void* self, std::int64_t offset, int whence) {
  auto& video = *static_cast<VideoStream*>(self);
  whence &= ~AVSEEK_FORCE;
  if (whence == AVSEEK_SIZE) return video.file_.bytes;
  const std::int64_t from = whence == SEEK_SET   ? 0
                            : whence == SEEK_CUR ? video.position_
                                                 : video.file_.bytes;
  if (offset < -from || offset > max_video_bytes) return AVERROR(EINVAL);
  return video.position_ = from + offset;
}

void VideoStream::damaged(int status) const {
  require(read_error_ == 0, Status::io, "{}: cannot be read: {}", name(),
          std::strerror(read_error_));
  fail(Status::data, "{}: damaged or truncated {}: {}", name(),
       contents_ == Contents::video ? "video" : "image", libav_reason(status));
}

std::span<const std::string_view> VideoStream::allowed_containers() const {
  return contents_ == Contents::video ? std::span<const std::string_view>(containers)
                                      : image_containers;
}

std::span<const std::string_view> VideoStream::allowed_decoders() const {
  return contents_ == Contents::video ? std::span<const std::string_view>(decoders)
                                      : image_decoders;
}

void VideoStream::open_container() {
  const auto allowed = allowed_containers();
  const AVInputFormat* container = nullptr;
  int status = av_.av_probe_input_buffer2(io_.get(), &container, "", nullptr, 0, 0);
  require(read_error_ == 0, Status::io, "{}: cannot be read: {}", name(),
          std::strerror(read_error_));
  const std::string_view found = status >= 0 ? container->name : "unknown";
  if (std::ranges::find(allowed, found) == allowed.end()) {
    std::rewind(file_.stream.get());
    const std::string other = what_it_is(read_bytes(file_, file_kind_bytes));
    fail(Status::data, "{}: not {} that is read: its format is {}, expected one of {}{}", name(),
         contents_ == Contents::video ? "a video" : "an image", found, fmt::join(allowed, "; "),
         other);
  }

  AVFormatContext* format = av_.avformat_alloc_context();
  require(format != nullptr, Status::unavailable, "{}: not enough memory to read it", name());
  format->pb = io_.get();
  format->io_open = open_no_other_file;
  Options options;
  options.set("protocol_whitelist", "none");
  options.set("codec_whitelist", fmt::format("{}", fmt::join(allowed_decoders(), ",")));
  options.set("max_streams", "100");
  status = av_.avformat_open_input(&format, "", container, options.entries());  // frees on failure
  if (status < 0) damaged(status);
  format_.reset(format);

  // Decoders that look into the first frames have the same limits.
  std::vector<Options> of_streams(format_->nb_streams);
  std::vector<AVDictionary*> entries;
  for (Options& each : of_streams) {
    each.set("max_pixels", std::to_string(max_video_pixels));
    each.set("threads", "1");
    entries.push_back(std::exchange(*each.entries(), nullptr));
  }
  status = av_.avformat_find_stream_info(format_.get(), entries.data());
  for (std::size_t i = 0; i < entries.size(); ++i) *of_streams[i].entries() = entries[i];
  if (status < 0) damaged(status);

  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    AVStream* stream = format_->streams[i];
    const bool is_picture = (stream->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0;
    const bool is_video = stream->codecpar->codec_type == AVMEDIA_TYPE_VIDEO && !is_picture;
    if (is_video && stream_ == nullptr) {
      stream_ = stream;
    } else {
      stream->discard = AVDISCARD_ALL;
    }
  }
  require(stream_ != nullptr, Status::data, "{}: it has no video stream", name());
}

void VideoStream::open_decoder() {
  const AVCodecParameters& parameters = *stream_->codecpar;
  const std::int64_t width = parameters.width, height = parameters.height;
  if (width <= 0 || height <= 0) damaged(AVERROR_INVALIDDATA);
  require(width * height <= max_video_pixels, Status::data,
          "{}: frames of {} x {} pixels, expected at most {}", name(), width, height,
          max_video_pixels);
  const AVCodec* codec = av_.avcodec_find_decoder(parameters.codec_id);
  const auto allowed = allowed_decoders();
  require(codec != nullptr && std::ranges::find(allowed, codec->name) != allowed.end(),
          Status::data, "{}: it is coded as {}, expected one of {}", name(),
          av_.avcodec_get_name(parameters.codec_id), fmt::join(allowed, ", "));
  decoder_.reset(av_.avcodec_alloc_context3(codec));
  require(decoder_ != nullptr, Status::unavailable, "{}: not enough memory to read it", name());
  int status = av_.avcodec_parameters_to_context(decoder_.get(), &parameters);
  if (status < 0) damaged(status);
  decoder_->pkt_timebase = stream_->time_base;
  decoder_->max_pixels = max_video_pixels;
  // Frames of damaged videos could depend on the number of threads.
  decoder_->thread_count = 1;
  decoder_->err_recognition |= AV_EF_CRCCHECK;
  // H.264 that was cut without encoding it again often refers to frames before the cut. They are
  // not shown, so this is no damage; wrong slices are found by check_frame().
  // With this flag, TIFF's decoder also refuses tags that it does not know, such as orientation.
  if (parameters.codec_id != AV_CODEC_ID_H264 && parameters.codec_id != AV_CODEC_ID_TIFF) {
    decoder_->err_recognition |= AV_EF_EXPLODE;
  }
  status = av_.avcodec_open2(decoder_.get(), codec, nullptr);
  if (status < 0) damaged(status);
}

// As the command ffmpeg turns frames. Other angles than multiples of 90° are not supported.
int VideoStream::find_orientation() const {
  std::size_t bytes = 0;
  const std::uint8_t* data = nullptr;
#if REELMESH_LIBAV_CODED_SIDE_DATA
  const AVCodecParameters& parameters = *stream_->codecpar;
  for (int i = 0; i < parameters.nb_coded_side_data; ++i) {
    const AVPacketSideData& side = parameters.coded_side_data[i];
    if (side.type != AV_PKT_DATA_DISPLAYMATRIX) continue;
    data = side.data;
    bytes = side.size;
    break;
  }
#else
  data = av_.av_stream_get_side_data(stream_, AV_PKT_DATA_DISPLAYMATRIX, &bytes);
#endif
  std::array<std::int32_t, 9> matrix{};
  if (data == nullptr || bytes < sizeof matrix) return 1;
  std::memcpy(matrix.data(), data, sizeof matrix);
  const double angle = -std::round(av_.av_display_rotation_get(matrix.data()));
  const int turns = static_cast<int>(std::lround(angle / 90));
  require(std::isfinite(angle) && std::abs(angle - 90 * turns) < 1, Status::data,
          "{}: frames are turned by {} degrees, expected a multiple of 90", name(), angle);
  switch ((turns + 4) % 4) {
    case 1:
      return matrix[3] > 0 ? 5 : 6;
    case 2:
      return matrix[0] < 0 ? (matrix[4] < 0 ? 3 : 2) : (matrix[4] < 0 ? 4 : 1);
    case 3:
      return matrix[3] < 0 ? 7 : 8;
    default:
      return matrix[4] < 0 ? 4 : 1;
  }
}

double VideoStream::fps() const {
  AVRational rate = stream_->avg_frame_rate;
  if (rate.num <= 0 || rate.den <= 0) rate = stream_->r_frame_rate;
  return rate.num > 0 && rate.den > 0 ? static_cast<double>(rate.num) / rate.den : 0;
}

std::optional<double> VideoStream::milliseconds_of(std::int64_t time) const {
  const AVRational& base = stream_->time_base;
  if (time == AV_NOPTS_VALUE || base.num <= 0 || base.den <= 0) return std::nullopt;
  return 1e3 * static_cast<double>(time) * base.num / base.den;
}

std::optional<double> VideoStream::milliseconds() const {
  return milliseconds_of(frame_->best_effort_timestamp);
}

VideoStream::Packet VideoStream::next_packet(double& milliseconds) {
  if (!read_packet()) return Packet::end;
  const std::optional<double> time = milliseconds_of(packet_->pts);
  if (!time || (packet_->flags & AV_PKT_FLAG_DISCARD) != 0) return Packet::none;
  milliseconds = *time;
  return Packet::shown;
}

bool VideoStream::seek_to(double milliseconds) {
  const AVRational& base = stream_->time_base;
  if (base.num <= 0 || base.den <= 0) return false;
  const double time = std::round(milliseconds / 1e3 * base.den / base.num);
  const int status =
      av_.av_seek_frame(format_.get(), stream_->index, to_integer(time), AVSEEK_FLAG_BACKWARD);
  av_.avcodec_flush_buffers(decoder_.get());
  return status >= 0 && read_error_ == 0;
}

// Reads the next packet of the stream. Whether there was one.
bool VideoStream::read_packet() {
  int status = 0;
  forget_libav_errors();
  do {
    av_.av_packet_unref(packet_.get());
    status = av_.av_read_frame(format_.get(), packet_.get());
  } while (status >= 0 && packet_->stream_index != stream_->index);
  if (read_error_ != 0 || (status < 0 && status != AVERROR_EOF)) damaged(status);
  // Of a Matroska file that ends too early, only the log tells.
  const bool corrupt = status >= 0 && (packet_->flags & AV_PKT_FLAG_CORRUPT) != 0;
  if (corrupt || has_libav_error()) damaged(AVERROR_INVALIDDATA);
  return status >= 0;
}

// Gives the decoder the next packet of the stream, or the end. Whether there was a packet.
bool VideoStream::send_packet() {
  const bool is_there = read_packet();
  const int status = av_.avcodec_send_packet(decoder_.get(), is_there ? packet_.get() : nullptr);
  if (status < 0) damaged(status);
  return is_there;
}

void VideoStream::check_frame() {
  // FFV1's decoder conceals slices with a wrong checksum, those of TIFF and GIF fill in rows that
  // are missing at the end: they only log it. TIFF's also logs tags that it does not know, which is
  // no damage.
  const bool is_tiff = decoder_->codec_id == AV_CODEC_ID_TIFF;
  const bool logs =
      is_tiff || decoder_->codec_id == AV_CODEC_ID_FFV1 || decoder_->codec_id == AV_CODEC_ID_GIF;
  const bool unknown_tag = is_tiff && libav_reason(0).starts_with("Unknown or unsupported tag");
  const bool concealed = logs && has_libav_error() && !unknown_tag;
  if (concealed || frame_->decode_error_flags != 0 ||
      (frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0) {
    damaged(AVERROR_INVALIDDATA);
  }
  ++frames_;
  require(frames_ <= max_frames_, Status::data,
          "{}: the video has more than {} frames, expected at most as many", name(), max_frames_);
  if (frames_ == 1) {
    width_ = frame_->width;
    height_ = frame_->height;
    pixel_format_ = frame_->format;
    require(width_ > 0 && height_ > 0 && std::int64_t{width_} * height_ <= max_video_pixels,
            Status::data, "{}: frames of {} x {} pixels, expected at most {}", name(), width_,
            height_, max_video_pixels);
  }
  require(frame_->width == width_ && frame_->height == height_ && frame_->format == pixel_format_,
          Status::data, "{}: frame {} has {} x {} pixels ({}), the first one {} x {} ({})", name(),
          frames_ - 1, frame_->width, frame_->height,
          av_.av_get_pix_fmt_name(static_cast<AVPixelFormat>(frame_->format)), width_, height_,
          av_.av_get_pix_fmt_name(static_cast<AVPixelFormat>(pixel_format_)));
}

const AVFrame* VideoStream::next() {
  for (bool ended = false;;) {
    const int status = av_.avcodec_receive_frame(decoder_.get(), frame_.get());
    if (status == 0) {
      check_frame();
      return frame_.get();
    }
    if (status == AVERROR_EOF) return nullptr;
    if (status != AVERROR(EAGAIN) || ended) damaged(status);
    ended = !send_packet();
  }
}

}  // namespace reelmesh::media
