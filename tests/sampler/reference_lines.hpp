#pragma once
// Reads tests/data/sampler, which tools/reference/make_sampler_data.py writes.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "support/released_scheduler.hpp"

namespace reelmesh {

inline std::vector<std::string> reference_lines(const std::string& name) {
  std::ifstream file(std::string(REELMESH_TEST_DATA) + "/sampler/" + name);
  EXPECT_TRUE(file) << name;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  EXPECT_FALSE(lines.empty()) << name;
  return lines;
}

/// 64-bit FNV-1a, over words instead of bytes.
struct Hash {
  std::uint64_t value = 0xcbf29ce484222325U;
  void add(std::uint64_t word) { value = (value ^ word) * 0x100000001b3U; }
};

inline std::vector<std::uint32_t> bits(std::span<const float> values) {
  std::vector<std::uint32_t> words;
  for (const float x : values) words.push_back(std::bit_cast<std::uint32_t>(x));
  return words;
}

inline std::vector<std::uint32_t> read_bits(std::istream& in, std::size_t count) {
  std::vector<std::uint32_t> words(count);
  for (std::uint32_t& word : words) in >> std::hex >> word;
  EXPECT_TRUE(in);
  return words;
}

}  // namespace reelmesh
