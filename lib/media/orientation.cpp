#include "media/orientation.hpp"

#include <cstdint>
#include <optional>

namespace reelmesh::media {
namespace {

constexpr std::uint32_t orientation_tag = 0x0112;

/// The numbers of a TIFF structure, in its byte order. Empty beyond its end.
class Tiff {
 public:
  explicit Tiff(std::string_view bytes)
      : bytes_(bytes), little_endian_(bytes.starts_with(std::string_view("II*\0", 4))) {
    valid_ = little_endian_ || bytes.starts_with(std::string_view("MM\0*", 4));
  }

  bool valid() const { return valid_; }

  std::optional<std::uint32_t> number(std::uint64_t at, std::uint64_t count) const {
    if (at > bytes_.size() || count > bytes_.size() - at) return std::nullopt;
    std::uint32_t value = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t index = little_endian_ ? at + count - 1 - i : at + i;
      value = value << 8U | static_cast<std::uint8_t>(bytes_[index]);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool little_endian_, valid_ = false;
};

// The value of the tag in the first directory.
std::optional<int> exif_orientation(std::string_view bytes) {
  constexpr std::string_view prefix("Exif\0\0", 6);
  for (int i = 0; i < 2 && bytes.starts_with(prefix); ++i) bytes.remove_prefix(prefix.size());
  const Tiff tiff(bytes);
  const auto directory = tiff.number(4, 4);
  if (!tiff.valid() || !directory) return std::nullopt;
  const auto entries = tiff.number(*directory, 2);
  for (std::uint32_t i = 0; entries && i < *entries; ++i) {
    const std::uint64_t entry = *directory + 2ULL + 12ULL * i;  // tag, type, count, value
    const auto entry_value = [&](std::uint64_t offset, std::uint64_t count) {
      return tiff.number(entry + offset, count).value_or(0);
    };
    if (!tiff.number(entry, 12)) return std::nullopt;
    if (entry_value(0, 2) != orientation_tag) continue;
    const std::uint32_t type = entry_value(2, 2);
    const bool is_short = type == 3 || type == 8, is_long = type == 4 || type == 9;
    if ((!is_short && !is_long) || entry_value(4, 4) != 1) return std::nullopt;
    const std::uint32_t value = entry_value(8, is_short ? 2 : 4);
    return value <= 8 ? static_cast<int>(value) : 0;
  }
  return std::nullopt;
}

// As Pillow searches it: tiff:Orientation="6", or <tiff:Orientation>6.
std::optional<int> xmp_orientation(std::string_view xmp) {
  constexpr std::string_view name = "tiff:Orientation";
  for (std::size_t at = xmp.find(name); at != xmp.npos; at = xmp.find(name, at + 1)) {
    std::string_view rest = xmp.substr(at + name.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return std::nullopt;
}

}  // namespace

int image_orientation(std::string_view exif, std::string_view xmp) {
  std::optional<int> found = exif_orientation(exif);
  if (!found) found = xmp_orientation(xmp);
  return found && *found >= 1 && *found <= 8 ? *found : 1;
}

Tensor turned(const Tensor& stored, int orientation) {
  if (orientation == 1) return stored;
  const std::int64_t rows = stored.shape(0), columns = stored.shape(1);
  const bool exchanged = exchanges_sides(orientation);
  // Which ends of the stored rows and columns come first.
  const bool from_bottom =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const std::int64_t row_step = from_bottom ? -columns : columns, column_step = from_right ? -1 : 1;
  const std::int64_t first =
      (from_bottom ? (rows - 1) * columns : 0) + (from_right ? columns - 1 : 0);
  Tensor out =
      Tensor::empty({exchanged ? columns : rows, exchanged ? rows : columns, 3}, DType::uint8);
  const std::int64_t down = exchanged ? column_step : row_step;
  const std::int64_t along = exchanged ? row_step : column_step;
  const auto* from = stored.data<std::uint8_t>();
  auto* to = out.data<std::uint8_t>();
  for (std::int64_t row = 0; row < out.shape(0); ++row) {
    for (std::int64_t column = 0; column < out.shape(1); ++column, to += 3) {
      const auto* pixel = from + 3 * (first + row * down + column * along);
      to[0] = pixel[0], to[1] = pixel[1], to[2] = pixel[2];
    }
  }
  return out;
}

}  // namespace reelmesh::media
