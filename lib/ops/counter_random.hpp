#pragma once
// Random numbers by their place: SplitMix64 (Steele, Lea and Flood 2014), whose state grows by
// `golden` per number, and whose mix() turns it into the random number. As the state is a counter,
// any rank and any thread can make the number of any element.
#include <cstdint>
#include <string_view>

#include "base/host_device.hpp"

namespace reelmesh::ops {

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;

[[gnu::always_inline]] REELMESH_HOST_DEVICE constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// The number of element `index`, 64 random bits.
[[gnu::always_inline]] REELMESH_HOST_DEVICE constexpr std::uint64_t random_bits(
    std::uint64_t key, std::uint64_t index) {
  return mix(key + index * golden);
}

/// The key of an array by its name.
constexpr std::uint64_t random_key(std::string_view name, std::uint64_t seed) {
  std::uint64_t key = mix(seed + golden);
  for (const char c : name) key = mix(key + golden + static_cast<unsigned char>(c));
  return key;
}

}  // namespace reelmesh::ops
