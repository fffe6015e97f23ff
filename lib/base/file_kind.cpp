#include "base/file_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace reelmesh {
namespace {

using namespace std::string_view_literals;

struct Known {
  std::string_view begin;  ///< '?' stands for any byte
  std::size_t at;          ///< where `begin` stands in the file
  const char* what;
  FileKind kind = FileKind::other;
};

// A pickle can run programs when it is read, so these are never read here.
constexpr const char* of_torch =
    ", as torch.save writes, expected safetensors: convert it with safetensors.torch.save_file("
    "torch.load(FILE, weights_only=True), \"FILE.safetensors\")";

constexpr std::array files = std::to_array<Known>({
    {"version https://git-lfs"sv, 0,
     "a Git LFS pointer in place of the file: run \"git lfs pull\" in its folder"},
    {"GGUF"sv, 0, "a GGUF file, whose quantized weights are not read"},
    {"PK\x03\x04"sv, 0, "a zip archive", FileKind::torch},
    {"\x80\x02"sv, 0, "a Python pickle", FileKind::torch},
    {"\x80\x03"sv, 0, "a Python pickle", FileKind::torch},
    {"\x80\x04"sv, 0, "a Python pickle", FileKind::torch},
    {"\x80\x05"sv, 0, "a Python pickle", FileKind::torch},
    {"\x1f\x8b"sv, 0, "compressed with gzip"},
    {"\xfd\x37zXZ\0"sv, 0, "compressed with xz"},
    {"\x28\xb5\x2f\xfd"sv, 0, "compressed with zstd"},
    {"BZh"sv, 0, "compressed with bzip2"},
    {"7z\xbc\xaf\x27\x1c"sv, 0, "a 7z archive"},
    {"Rar!\x1a\x07"sv, 0, "a RAR archive"},
    {"ustar"sv, 257, "a tar archive"},
    {"\x89HDF\r\n\x1a\n"sv, 0, "an HDF5 file"},
    {"\x93NUMPY"sv, 0, "a NumPy file"},
    {"%PDF-"sv, 0, "a PDF"},
    {"\x89PNG\r\n\x1a\n"sv, 0, "a PNG image", FileKind::png},
    {"\xff\xd8\xff"sv, 0, "a JPEG image", FileKind::jpeg},
    {"GIF8"sv, 0, "a GIF image", FileKind::gif},
    {"II*\0"sv, 0, "a TIFF image", FileKind::tiff},
    {"MM\0*"sv, 0, "a TIFF image", FileKind::tiff},
    {"RIFF????WEBP"sv, 0, "a WebP image", FileKind::webp},
    {"ftypavif"sv, 4, "an AVIF image", FileKind::avif},
    {"ftyphei"sv, 4, "a HEIC image"},
    {"ftypmif1"sv, 4, "a HEIC image"},
    {"\0\0\0\x0cJXL "sv, 0, "a JPEG XL image"},
    {"\xff\x0a"sv, 0, "a JPEG XL image"},
    {"8BPS"sv, 0, "a Photoshop image"},
    {"ftyp"sv, 4, "an MP4 or MOV video"},
    {"\x1a\x45\xdf\xa3"sv, 0, "a Matroska or WebM video"},
    {"RIFF????AVI "sv, 0, "an AVI video"},
    {"BM"sv, 0, "a BMP image", FileKind::bmp},
});

const Known* find(std::string_view first_bytes) {
  const auto* found = std::ranges::find_if(files, [&](const Known& known) {
    if (first_bytes.size() < known.at + known.begin.size()) return false;
    return std::ranges::equal(known.begin, first_bytes.substr(known.at, known.begin.size()),
                              [](char a, char b) { return a == '?' || a == b; });
  });
  return found == files.end() ? nullptr : found;
}

bool is_web_page(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n\xef\xbb\xbf"), text.size());
  const std::string word = lower_case(text.substr(begin, 16));
  return word.starts_with("<!doctype html") || word.starts_with("<html") ||
         word.starts_with("<head");
}

}  // namespace

FileKind file_kind(std::string_view first_bytes) {
  const Known* known = find(first_bytes);
  return known == nullptr ? FileKind::other : known->kind;
}

std::string what_it_is(std::string_view first_bytes) {
  if (is_web_page(first_bytes)) {
    return " (it is a web page: the link led to one, or the download needed a login)";
  }
  const Known* known = find(first_bytes);
  if (known == nullptr) return {};
  return fmt::format(" (it is {}{})", known->what, known->kind == FileKind::torch ? of_torch : "");
}

}  // namespace reelmesh
