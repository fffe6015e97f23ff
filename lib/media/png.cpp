#include <png.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

// Of chunks with text or EXIF data, in all; larger ones are ignored.
constexpr int max_chunk_bytes = 1 << 20, max_chunks = 64;
constexpr png_alloc_size_t max_png_allocation = 64U << 20U;
// A byte of a zlib stream makes at most this many bytes.
constexpr std::int64_t max_deflate_ratio = 1032;

class PngReader {
 public:
  explicit PngReader(const InputFile& file) : file_(file) {
    require(png() != nullptr && info() != nullptr, Status::unavailable,
            "{}: not enough memory to read it", file.name);
    call([&] {
      png_set_read_fn(png(), file.stream.get(), read);
      // Not only IDAT: what a damaged chunk of metadata says is unknown.
      png_set_crc_action(png(), PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
      png_set_user_limits(png(), max_image_side, max_image_side);
      png_set_chunk_malloc_max(png(), max_chunk_bytes);
      png_set_chunk_cache_max(png(), max_chunks);
      // Only these chunks are of use besides those that every PNG file has.
      png_set_keep_unknown_chunks(png(), PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_set_keep_unknown_chunks(png(), PNG_HANDLE_CHUNK_AS_DEFAULT,
                                  reinterpret_cast<png_const_bytep>("eXIf\0tEXt\0zTXt\0iTXt"), 4);
      png_set_keep_unknown_chunks(png(), PNG_HANDLE_CHUNK_ALWAYS,
                                  reinterpret_cast<png_const_bytep>("acTL"), 1);
      png_read_info(png(), info());
    });
  }

  png_structp png() { return structs_.png; }
  png_infop info() { return structs_.info; }

  /// Calls functions of libpng; f may only have locals without destructors.
  template <class F>
  void call(F f) {
    if (escape_.attempt(f)) return;
    check_read(file_);
    fail(Status::data, "{}: damaged PNG file: {}", file_.name, one_line(escape_.reason()));
  }

 private:
  static void on_error(png_structp png, png_const_charp message) {
    static_cast<Escape*>(png_get_error_ptr(png))->escape(message);
  }
  static void on_warning(png_structp, png_const_charp) {}
  // libpng allocates the length that a chunk says before it reads the chunk.
  static png_voidp allocate(png_structp, png_alloc_size_t bytes) {
    return bytes <= max_png_allocation ? std::malloc(bytes) : nullptr;
  }
  static void release(png_structp, png_voidp memory) { std::free(memory); }
  static void read(png_structp png, png_bytep to, std::size_t count) {
    auto* stream = static_cast<std::FILE*>(png_get_io_ptr(png));
    if (std::fread(to, 1, count, stream) != count) png_error(png, "it ends too early");
  }

  // Of its own, so that they are released if the constructor of PngReader throws.
  struct Structs {
    explicit Structs(Escape& escape)
        : png(png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &escape, on_error, on_warning,
                                       nullptr, allocate, release)) {
      if (png != nullptr) info = png_create_info_struct(png);
    }
    ~Structs() { png_destroy_read_struct(&png, &info, nullptr); }
    Structs(const Structs&) = delete;
    Structs& operator=(const Structs&) = delete;
    png_structp png;
    png_infop info = nullptr;
  };

  const InputFile& file_;
  Escape escape_;
  Structs structs_{escape_};
};

// The number of images of an APNG file; 1 for others.
std::uint32_t apng_frames(PngReader& reader) {
  png_unknown_chunkp chunks = nullptr;
  const int count = png_get_unknown_chunks(reader.png(), reader.info(), &chunks);
  for (int i = 0; i < count; ++i) {
    const png_unknown_chunk& chunk = chunks[i];
    if (std::string_view(reinterpret_cast<const char*>(chunk.name)) == "acTL" && chunk.size >= 4) {
      return png_get_uint_32(chunk.data);
    }
  }
  return 1;
}

// ImageMagick's text chunk for EXIF data: a line end, the name, the length, and hexadecimal digits.
std::string raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return "";
    text.remove_prefix(end + 1);
  }
  std::string bytes;
  int digits = 0, value = 0;
  for (const char c : text) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) continue;
    value = value * 16 + static_cast<int>(digit);
    if (++digits % 2 == 0) bytes.push_back(static_cast<char>(std::exchange(value, 0)));
  }
  return bytes;
}

// After the whole file was read: metadata may follow the pixels.
int read_orientation(PngReader& reader) {
  std::string exif;
  std::string_view xmp;
  png_textp texts = nullptr;
  const int count = png_get_text(reader.png(), reader.info(), &texts, nullptr);
  for (int i = 0; i < count; ++i) {
    const std::string_view key = texts[i].key;
    const bool international = texts[i].compression > PNG_TEXT_COMPRESSION_zTXt;
    const std::string_view text(texts[i].text,
                                international ? texts[i].itxt_length : texts[i].text_length);
    if (key == "Raw profile type exif") exif = raw_profile(text);
    if (key == "XML:com.adobe.xmp") xmp = text;
  }
  png_uint_32 bytes = 0;
  png_bytep data = nullptr;
  if (png_get_eXIf_1(reader.png(), reader.info(), &bytes, &data) != 0) {
    exif.assign(reinterpret_cast<const char*>(data), bytes);
  }
  return image_orientation(exif, xmp);
}

// Bytes in a row [column], at the end of the row of pixels [column, 3] that they become.
void spread_grey(png_bytep row, std::int64_t width) {
  const png_bytep from = row + 2 * width;
  for (std::int64_t x = 0; x < width; ++x) row[3 * x] = row[3 * x + 1] = row[3 * x + 2] = from[x];
}

// 16-bit values, most significant byte first. Pillow's mode "I;16" becomes RGB by clipping.
void clip_grey(png_bytep row, std::int64_t width) {
  const png_bytep from = row + width;
  for (std::int64_t x = 0; x < width; ++x) {
    const png_byte value = from[2 * x] != 0 ? 255 : from[2 * x + 1];
    row[3 * x] = row[3 * x + 1] = row[3 * x + 2] = value;
  }
}

void read_pixels(PngReader& reader, const std::string& name, ImageSize size, Tensor& pixels) {
  png_structp png = reader.png();
  png_infop info = reader.info();
  const int colour = png_get_color_type(png, info);
  const bool is_palette = colour == PNG_COLOR_TYPE_PALETTE;
  const bool is_grey16 = colour == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) == 16;
  reader.call([&] {
    if (is_palette) {
      png_set_packing(png);
    } else if (!is_grey16) {
      png_set_expand_gray_1_2_4_to_8(png);
      png_set_strip_16(png);  // the more significant byte, as Pillow
    }
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
  });
  // Rows are read to the end of the memory of the row that they become.
  const auto row_bytes = static_cast<std::int64_t>(png_get_rowbytes(png, info));
  const std::int64_t bytes_per_pixel = row_bytes / size.width;
  expect(row_bytes % size.width == 0 && bytes_per_pixel <= 3, "{}: {} bytes in a row of {} pixels",
         name, row_bytes, size.width);
  pixels = Tensor::empty({size.height, size.width, 3}, DType::uint8);
  std::vector<png_bytep> rows;
  for (std::int64_t y = 0; y < size.height; ++y) {
    rows.push_back(pixels.data<std::uint8_t>() + 3 * size.width * (y + 1) - row_bytes);
  }
  reader.call([&] {
    png_read_image(png, rows.data());
    png_read_end(png, info);
  });

  png_colorp palette = nullptr;
  int colours = 0;
  if (is_palette) png_get_PLTE(png, info, &palette, &colours);
  for (std::int64_t y = 0; y < size.height; ++y) {
    const png_bytep row = pixels.data<std::uint8_t>() + 3 * size.width * y;
    if (is_palette) {
      for (std::int64_t x = 0; x < size.width; ++x) {
        const int index = row[2 * size.width + x];
        require(index < colours, Status::data,
                "{}: damaged PNG file: a pixel has colour {} of a palette of {}", name, index,
                colours);
        row[3 * x] = palette[index].red;
        row[3 * x + 1] = palette[index].green;
        row[3 * x + 2] = palette[index].blue;
      }
    } else if (is_grey16) {
      clip_grey(row, size.width);
    } else if (bytes_per_pixel == 1) {
      spread_grey(row, size.width);
    }
  }
}

}  // namespace

ImageHeader decode_png(const InputFile& file, Tensor* pixels) {
  PngReader reader(file);
  const ImageSize size{.height = png_get_image_height(reader.png(), reader.info()),
                       .width = png_get_image_width(reader.png(), reader.info())};
  const auto row_bytes = static_cast<std::int64_t>(png_get_rowbytes(reader.png(), reader.info()));
  check_size(file, size, size.height * row_bytes / max_deflate_ratio);
  const std::uint32_t frames = apng_frames(reader);
  require(frames == 1, Status::data, "{}: an animated PNG file ({} images), expected one image",
          file.name, frames);
  if (pixels != nullptr) {
    read_pixels(reader, file.name, size, *pixels);
  } else {
    reader.call([&] {
      const int passes = png_set_interlace_handling(reader.png());
      for (std::int64_t row = 0; row < passes * size.height; ++row) {
        png_read_row(reader.png(), nullptr, nullptr);
      }
      png_read_end(reader.png(), reader.info());
    });
  }
  return {.stored = size, .orientation = read_orientation(reader)};
}

}  // namespace reelmesh::media
