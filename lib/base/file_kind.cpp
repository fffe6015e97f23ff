#include "base/file_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace reelmesh {
namespace {

using namespace std::string_view_literals;

struct Kind {
  std::string_view begin;
  std::size_t at;  ///< where `begin` stands in the file
  const char* what;
};

// A pickle can run programs when it is read, so these are never read here.
constexpr const char* of_torch =
    ", as torch.save writes, expected safetensors: convert it with safetensors.torch.save_file("
    "torch.load(FILE, weights_only=True), \"FILE.safetensors\")";

constexpr std::array kinds = std::to_array<Kind>({
    {"version https://git-lfs"sv, 0,
     "a Git LFS pointer in place of the file: run \"git lfs pull\" in its folder"},
    {"GGUF"sv, 0, "a GGUF file, whose quantized weights are not read"},
    {"PK\x03\x04"sv, 0, "a zip archive"},
    {"\x80\x02"sv, 0, "a Python pickle"},
    {"\x80\x03"sv, 0, "a Python pickle"},
    {"\x80\x04"sv, 0, "a Python pickle"},
    {"\x80\x05"sv, 0, "a Python pickle"},
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
    {"\x89PNG\r\n\x1a\n"sv, 0, "a PNG image"},
    {"\xff\xd8\xff"sv, 0, "a JPEG image"},
    {"GIF8"sv, 0, "a GIF image"},
    {"II*\0"sv, 0, "a TIFF image"},
    {"MM\0*"sv, 0, "a TIFF image"},
    {"WEBP"sv, 8, "a WebP image"},
    {"ftypavif"sv, 4, "an AVIF image"},
    {"ftyphei"sv, 4, "a HEIC image"},
    {"ftypmif1"sv, 4, "a HEIC image"},
    {"\0\0\0\x0cJXL "sv, 0, "a JPEG XL image"},
    {"\xff\x0a"sv, 0, "a JPEG XL image"},
    {"8BPS"sv, 0, "a Photoshop image"},
    {"ftyp"sv, 4, "an MP4 or MOV video"},
    {"\x1a\x45\xdf\xa3"sv, 0, "a Matroska or WebM video"},
    {"AVI "sv, 8, "an AVI video"},
    {"BM"sv, 0, "a BMP image"},
});

bool is_web_page(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n\xef\xbb\xbf"), text.size());
  std::string word(text.substr(begin, 16));
  std::ranges::transform(word, word.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return word.starts_with("<!doctype html") || word.starts_with("<html") ||
         word.starts_with("<head");
}

}  // namespace

std::string what_it_is(std::string_view first_bytes) {
  if (is_web_page(first_bytes)) {
    return " (it is a web page: the link led to one, or the download needed a login)";
  }
  const auto kind = std::ranges::find_if(kinds, [&](const Kind& known) {
    return first_bytes.size() > known.at && first_bytes.substr(known.at).starts_with(known.begin);
  });
  if (kind == kinds.end()) return {};
  const std::string_view what = kind->what;
  return fmt::format(" (it is {}{})", what,
                     what == "a zip archive" || what == "a Python pickle" ? of_torch : "");
}

}  // namespace reelmesh
