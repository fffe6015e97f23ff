#pragma once
// A sum that has the same bits in whatever order, and in whatever parts, it is added up.
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/host_device.hpp"

namespace reelmesh::ops {

/// A sum of doubles in fixed point: three integers of 40 bits each, of which the lowest counts
/// units of 2⁻⁴⁰, so that adding is exact and partial sums of several ranks add up member by
/// member. Up to 2²² terms; each is rounded to 2⁻⁴⁰ once. A term of 2⁸⁰ or more, or one that is not
/// a number, makes the sum not a number.
struct ExactSum {
  std::int64_t high = 0, middle = 0, low = 0;
  std::int64_t lost = 0;  ///< terms beyond the range

  REELMESH_HOST_DEVICE void add(double term) {
    if (!(std::abs(term) < 0x1p80)) {
      ++lost;
      return;
    }
    const double upper = std::trunc(term * 0x1p-40);
    term -= upper * 0x1p40;  // exact, and so is the next
    const double whole = std::trunc(term);
    term -= whole;
    high += static_cast<std::int64_t>(upper);
    middle += static_cast<std::int64_t>(whole);
    low += static_cast<std::int64_t>(std::nearbyint(term * 0x1p40));
  }

  void add(const ExactSum& other) {
    high += other.high;
    middle += other.middle;
    low += other.low;
    lost += other.lost;
  }

  double value() const {
    if (lost > 0) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(high) * 0x1p40 +
           (static_cast<double>(middle) + static_cast<double>(low) * 0x1p-40);
  }
};

}  // namespace reelmesh::ops
