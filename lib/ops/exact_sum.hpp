#pragma once
// A sum whose bits do not depend on the order of additions or on how they are split.
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/host_device.hpp"

namespace reelmesh::ops {

/// A fixed-point sum of doubles. A term is split into integers of 40 bits in units of 2⁴⁰ (high), 1
/// (middle) and 2⁻⁴⁰ (low, rounded). Integer additions are exact, so partial sums of several ranks
/// are added member by member. For up to 2²² terms. The sum is NaN if a term is NaN or its
/// magnitude is 2⁸⁰ or more.
struct ExactSum {
  std::int64_t high = 0, middle = 0, low = 0;
  std::int64_t lost = 0;  ///< terms out of range or NaN

  /// The integers of a term, or NaN. Sums of those of max_terms_as_doubles terms are exact.
  struct Parts {
    double high = 0, middle = 0, low = 0;
  };
  static constexpr std::int64_t max_terms_as_doubles = std::int64_t{1} << 12;

  [[gnu::always_inline]] REELMESH_HOST_DEVICE static inline Parts parts_of(double term) {
    const double kept = std::abs(term) < 0x1p80 ? term : std::numeric_limits<double>::quiet_NaN();
    const double high = std::trunc(kept * 0x1p-40);
    const double below = kept - high * 0x1p40;  // exact, like the next subtraction
    const double middle = std::trunc(below);
    return {high, middle, std::nearbyint((below - middle) * 0x1p40)};
  }

  REELMESH_HOST_DEVICE void add(const Parts& parts) {
    if (!(std::abs(parts.high) < 0x1p53)) {
      ++lost;
      return;
    }
    high += static_cast<std::int64_t>(parts.high);
    middle += static_cast<std::int64_t>(parts.middle);
    low += static_cast<std::int64_t>(parts.low);
  }

  REELMESH_HOST_DEVICE void add(double term) { add(parts_of(term)); }

  void add(const ExactSum& other) {
    high += other.high;
    middle += other.middle;
    low += other.low;
    lost += other.lost;
  }

  /// The same sum with 0 ≤ low, middle < 2⁴⁰, which is unique, and to which as many terms can be
  /// added as to a new one.
  ExactSum carried() const {
    ExactSum sum = *this;
    constexpr std::int64_t bits = 40, mask = (std::int64_t{1} << bits) - 1;
    sum.middle += sum.low >> bits;  // rounds down
    sum.low &= mask;
    sum.high += sum.middle >> bits;
    sum.middle &= mask;
    return sum;
  }

  REELMESH_HOST_DEVICE double value() const {
    if (lost > 0) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(high) * 0x1p40 +
           (static_cast<double>(middle) + static_cast<double>(low) * 0x1p-40);
  }
};

}  // namespace reelmesh::ops
