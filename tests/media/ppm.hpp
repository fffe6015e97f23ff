#pragma once
// The reference data of tools/reference/make_media_data.py.
#include <sstream>
#include <vector>

#include "support/data_folder.hpp"
#include "support/temp_folder.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::test {

inline std::filesystem::path media_file(const std::string& name) {
  return data_folder() / "media" / name;
}

/// The images of FILE.ppm → uint8 [row, column, 3] each.
inline std::vector<Tensor> read_ppm(const std::filesystem::path& file) {
  std::istringstream in(read_file(file.string() + ".ppm"));
  std::vector<Tensor> images;
  std::string kind;
  while (in >> kind) {
    std::int64_t width = 0, height = 0, largest = 0;
    in >> width >> height >> largest;
    in.get();
    require(kind == "P6" && largest == 255 && width > 0 && height > 0, Status::data,
            "{}.ppm: not a PPM file", file.string());
    images.push_back(Tensor::empty({height, width, 3}, DType::uint8));
    in.read(static_cast<char*>(images.back().raw()), images.back().bytes());
    require(in.good(), Status::data, "{}.ppm: truncated", file.string());
  }
  return images;
}

/// How many bytes of two images of one shape differ.
inline std::int64_t differences(const Tensor& a, const Tensor& b) {
  const auto x = a.span<std::uint8_t>(), y = b.span<std::uint8_t>();
  std::int64_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) count += x[i] != y[i] ? 1 : 0;
  return count;
}

}  // namespace reelmesh::test
