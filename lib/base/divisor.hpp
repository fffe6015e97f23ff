#pragma once
#include <bit>
#include <cstdint>

#include "base/host_device.hpp"

namespace reelmesh {

/// Divides by a number that is known only when the program runs, without a division: a GPU has no
/// instruction for it and needs about 20 others. Granlund and Montgomery 1994, figure 4.1; exact
/// for all 32-bit numbers.
class Divisor {
 public:
  /// divisor: at least 1.
  explicit Divisor(std::uint32_t divisor)
      : divisor_(divisor),
        factor_(static_cast<std::uint32_t>(
            (((std::uint64_t{1} << ceil_log2(divisor)) - divisor) << 32) / divisor + 1)),
        first_shift_(ceil_log2(divisor) > 0 ? 1 : 0),
        second_shift_(ceil_log2(divisor) > 0 ? ceil_log2(divisor) - 1 : 0) {}

  REELMESH_HOST_DEVICE std::uint32_t divisor() const { return divisor_; }
  REELMESH_HOST_DEVICE std::uint32_t quotient(std::uint32_t x) const {
    const auto high = static_cast<std::uint32_t>(std::uint64_t{factor_} * x >> 32);
    return (high + ((x - high) >> first_shift_)) >> second_shift_;
  }

 private:
  // Rounded up.
  static std::uint32_t ceil_log2(std::uint32_t divisor) {
    return static_cast<std::uint32_t>(std::bit_width(divisor - 1));
  }
  std::uint32_t divisor_, factor_, first_shift_, second_shift_;
};

}  // namespace reelmesh
