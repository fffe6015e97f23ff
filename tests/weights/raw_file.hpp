#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace reelmesh::test {

/// `length` as in the first eight bytes of a safetensors file (little-endian).
inline std::string length_field(std::uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>((length >> (8 * i)) & 0xff);
  return out;
}

/// A safetensors file with this header, unchanged, and this many bytes of data: 0, 1, 2, ...
inline std::string raw_file(std::string_view header, std::size_t data_bytes) {
  std::string out = length_field(header.size()) + std::string(header);
  for (std::size_t i = 0; i < data_bytes; ++i) out += static_cast<char>(i & 0xff);
  return out;
}

}  // namespace reelmesh::test
