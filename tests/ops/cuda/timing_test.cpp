// The choice between calls by their times and the bits of their results.
#include "ops/cuda/timing.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

class FastestCall : public OnTestDevice {
 protected:
  void SetUp() override {
    OnTestDevice::SetUp();
    if (IsSkipped()) return;
    result_ = Tensor::zeros({8}, DType::float32, test_device());
    large_ = Tensor::zeros({4 << 20}, DType::float32, test_device());
    other_ = large_.clone();
  }
  // A call that leaves `number` in the result after so many copies of a large tensor.
  std::function<void()> call(float number, int copies) {
    const Tensor numbers = there(Tensor::of<float>(std::vector<float>(8, number), {8}));
    return [this, numbers, copies] {
      ++calls_;
      for (int i = 0; i < copies; ++i) large_.copy_from(other_);
      result_.copy_from(numbers);
    };
  }
  std::size_t fastest(const std::vector<std::function<void()>>& calls, bool same_bits,
                      double seconds = 60) {
    return gpu::fastest_call(test_device(), calls, result_, same_bits, seconds).index;
  }

  Tensor result_, large_, other_;
  int calls_ = 0;
};

TEST_F(FastestCall, HasTheBitsOfTheFirst) {
  const auto reference = call(1, 8), faster = call(1, 1), other = call(2, 0);
  EXPECT_EQ(fastest({reference, other, faster}, true), 2U);
  EXPECT_EQ(fastest({reference, other, faster}, false), 1U);
  EXPECT_EQ(fastest({reference, other}, true), 0U);
  EXPECT_EQ(fastest({faster, reference}, true), 0U);
}

TEST_F(FastestCall, TakesOnlyAsManyCallsAsThereIsTimeFor) {
  EXPECT_EQ(fastest({call(1, 8), call(1, 0)}, true, 0), 0U);
  EXPECT_EQ(calls_, 1);  // which gives its bits
  EXPECT_EQ(fastest({call(1, 8)}, true), 0U);
  EXPECT_EQ(calls_, 1);  // there is no choice
}

TEST_F(FastestCall, IsMeasuredWithTheSameNumbersEverywhere) {
  const Tensor numbers =
      back(gpu::numbers_to_measure(test_device(), DType::float32, {3, 1000'000}));
  const std::span<const float> all = numbers.span<float>();
  EXPECT_EQ(all[0], 1015568748 * 0x1p-31F);
  EXPECT_EQ(all[1'000'003], all[0]);
  EXPECT_EQ(all[2'999'999], all[2'999'999 - 2 * 1'000'003]);
  EXPECT_LT(*std::ranges::max_element(all), 1.0F);
  EXPECT_LT(*std::ranges::min_element(all), -0.99F);
}

TEST_F(FastestCall, IsMeasuredWithSumsOfWhichOnlyRoundingsRemain) {
  for (const int sign : {1, -1}) {
    const Tensor numbers =
        back(gpu::cancelling_numbers(test_device(), DType::float32, {300'001, 6}, sign));
    const std::span<const float> all = numbers.span<float>();
    for (std::size_t i = 0; i < all.size(); i += 6) {
      for (std::size_t c = 0; c < 3; ++c) {
        ASSERT_EQ(all[i + 3 + c], static_cast<float>(sign) * all[i + c]) << i;
      }
    }
    EXPECT_NE(all[0], all[6]);
  }
}

}  // namespace
}  // namespace reelmesh::test
