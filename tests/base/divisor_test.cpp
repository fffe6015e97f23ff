#include "base/divisor.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace reelmesh {
namespace {

TEST(Divisor, DividesEveryNumber) {
  std::vector<std::uint32_t> divisors, numbers;
  for (std::uint32_t i = 0; i < 32; ++i) {
    for (const std::uint32_t near : {-1U, 0U, 1U}) {
      numbers.push_back((std::uint32_t{1} << i) + near);
      if (numbers.back() > 0) divisors.push_back(numbers.back());
    }
  }
  for (std::uint32_t i = 1; i < 2000; ++i) divisors.push_back(i);
  for (const std::uint32_t n : {3U, 7U, 90U, 641U, 6700417U, 0x7fffffffU, 0xfffffffeU, ~0U}) {
    divisors.push_back(n);
  }
  for (std::uint32_t i = 0; i < 500; ++i) numbers.push_back(2654435769U * i);
  for (const std::uint32_t n : divisors) {
    const Divisor by(n);
    EXPECT_EQ(by.divisor(), n);
    for (const std::uint32_t number : numbers) {
      // Also just below and at multiples, where a quotient that is off by one shows.
      const std::uint32_t multiple = number / n * n;
      for (const std::uint32_t x : {number, multiple, multiple - 1}) {
        ASSERT_EQ(by.quotient(x), x / n) << x << " / " << n;
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh
