// clang-format off
#include <cstdio>     // jpeglib.h needs it
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "media/decoders.hpp"
#include "media/escape.hpp"
#include "media/orientation.hpp"

namespace reelmesh::media {
namespace {

// Progressive files have about ten scans; each goes over all pixels again.
constexpr int max_scans = 100;

// Warnings of libjpeg after which pixels are missing or wrong.
bool is_damage(int message) {
  switch (message) {
    case JWRN_ARITH_BAD_CODE:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
    case JWRN_NOT_SEQUENTIAL:
      return true;
    default:
      return false;
  }
}

class JpegReader {
 public:
  explicit JpegReader(const InputFile& file) : file_(file) {
    info().err = jpeg_std_error(&errors_);
    info().client_data = &escape_;
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    progress_.progress_monitor = on_progress;
    call([&] {
      jpeg_create_decompress(&info());
      info().progress = &progress_;
      jpeg_stdio_src(&info(), file.stream.get());
      jpeg_save_markers(&info(), JPEG_APP0 + 1, 0xffff);
      jpeg_read_header(&info(), TRUE);
    });
  }

  jpeg_decompress_struct& info() { return decompress_.info; }

  /// Calls functions of libjpeg; f may only have locals without destructors.
  template <class F>
  void call(F f) {
    if (escape_.attempt(f)) return;
    check_read(file_);
    fail(Status::data, "{}: damaged JPEG file: {}", file_.name, one_line(escape_.reason()));
  }

 private:
  static void on_error(j_common_ptr info) {
    char message[JMSG_LENGTH_MAX];
    info->err->format_message(info, message);
    static_cast<Escape*>(info->client_data)->escape(message);
  }
  static void on_message(j_common_ptr info, int level) {
    if (level < 0 && is_damage(info->err->msg_code)) on_error(info);
  }
  static void on_progress(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > max_scans) {
      static_cast<Escape*>(info->client_data)->escape("too many scans");
    }
  }

  // Of its own, so that it is released if the constructor of JpegReader throws.
  struct Decompress {
    Decompress() = default;
    ~Decompress() { jpeg_destroy_decompress(&info); }
    Decompress(const Decompress&) = delete;
    Decompress& operator=(const Decompress&) = delete;
    jpeg_decompress_struct info{};
  };

  const InputFile& file_;
  Escape escape_;
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  Decompress decompress_;
};

int read_orientation(const jpeg_decompress_struct& info) {
  constexpr std::string_view exif_prefix("Exif\0\0", 6), xmp_prefix("http://ns.adobe.com/xap/1.0/");
  std::string exif;
  std::string_view xmp;
  for (const auto* marker = info.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (data.starts_with(exif_prefix)) exif += data.substr(exif_prefix.size());
    if (data.starts_with(xmp_prefix)) xmp = data.substr(xmp_prefix.size());
  }
  return image_orientation(exif, xmp);
}

// As Pillow: Adobe's programs store inks inverted, and others are taken to do so, too; RGB are what
// ink and black leave of white, rounded.
void inks_to_rgb(std::span<const std::uint8_t> inks, std::uint8_t* rgb) {
  for (std::size_t i = 0; i < inks.size(); i += 4) {
    const int white = inks[i + 3];  // 255 - black
    for (std::size_t c = 0; c < 3; ++c) {
      const int product = (255 - inks[i + c]) * white + 128;
      const int left = white - (((product >> 8) + product) >> 8);
      *rgb++ = static_cast<std::uint8_t>(std::max(left, 0));
    }
  }
}

// Each block of 8 x 8 values takes at least one bit, except with arithmetic coding.
std::int64_t min_bytes(const jpeg_decompress_struct& info) {
  if (info.arith_code) return 0;
  const std::int64_t blocks =
      (std::int64_t{info.image_width} / 8) * (std::int64_t{info.image_height} / 8);
  return blocks / 8;
}

}  // namespace

ImageHeader decode_jpeg(const InputFile& file, Tensor* pixels) {
  JpegReader reader(file);
  jpeg_decompress_struct& info = reader.info();
  const ImageSize size{.height = info.image_height, .width = info.image_width};
  const bool is_cmyk = info.num_components == 4;
  require(info.num_components == 1 || info.num_components == 3 || is_cmyk, Status::data,
          "{}: a JPEG file with {} components, expected grey, RGB or CMYK", file.name,
          info.num_components);
  check_size(file, size, min_bytes(info));
  const ImageHeader header{.stored = size, .orientation = read_orientation(info)};
  if (pixels != nullptr) {
    // Pillow's settings are libjpeg's defaults: exact transform, smooth enlarging of the colours.
    info.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    *pixels = Tensor::empty({size.height, size.width, 3}, DType::uint8);
    auto* data = pixels->data<std::uint8_t>();
    std::vector<std::uint8_t> inks(is_cmyk ? 4 * static_cast<std::size_t>(size.width) : 0);
    reader.call([&] {
      jpeg_start_decompress(&info);
      while (info.output_scanline < info.output_height) {
        JSAMPROW rgb = data + std::int64_t{info.output_scanline} * 3 * size.width;
        JSAMPROW row = is_cmyk ? inks.data() : rgb;
        jpeg_read_scanlines(&info, &row, 1);
        if (is_cmyk) inks_to_rgb(inks, rgb);
      }
      jpeg_finish_decompress(&info);
    });
  }
  return header;
}

}  // namespace reelmesh::media
