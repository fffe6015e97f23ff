#include "ops/pointwise.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace reelmesh::ops {
namespace {

std::vector<float> values(const Tensor& x) {
  return {x.span<float>().begin(), x.span<float>().end()};
}

TEST(RepeatForBatch, GivesEveryItemAsOftenAsThereIsRoom) {
  Tensor out = Tensor::empty({2, 4, 1}, DType::float32);
  repeat_for_batch(Tensor::of<float>({1, 2}, {2, 1}), out);
  EXPECT_THAT(values(out), testing::ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
  repeat_for_batch(Tensor::of<float>({1, 2, 3, 4}, {2, 2, 1}), out);
  EXPECT_THAT(values(out), testing::ElementsAre(1, 1, 2, 2, 3, 3, 4, 4));
}

TEST(Average, RoundsToTheType) {
  const auto rounded_average = [](std::initializer_list<float> x, std::initializer_list<float> y,
                                  DType dtype) {
    Tensor mean = Tensor::empty({std::ssize(x)}, dtype);
    average(Tensor::of<float>(x, mean.shape()).to(dtype),
            Tensor::of<float>(y, mean.shape()).to(dtype), mean);
    return values(mean.to(DType::float32));
  };
  EXPECT_THAT(rounded_average({1, 2, -3}, {2, 2, 4}, DType::float32),
              testing::ElementsAre(1.5F, 2, 0.5F));
  EXPECT_THAT(rounded_average({129}, {130}, DType::bfloat16), testing::ElementsAre(130));
}

TEST(Gelu, IsThatOfTheErrorFunction) {
  std::vector<float> numbers;
  for (float x = -12; x < 12; x += 0.001F) numbers.push_back(x);
  numbers.insert(numbers.end(), {0.0F, -0.0F, 1e-30F, -1e-30F, 100.0F, -100.0F, 3e38F, -3e38F});
  const Tensor x = Tensor::of<float>(numbers, {std::ssize(numbers)});
  const std::vector<float> found = values(gelu(x));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double exact = 0.5 * numbers[i] * (1 + std::erf(double{numbers[i]} * std::sqrt(0.5)));
    EXPECT_NEAR(found[i], exact, 2e-7 * std::max(1.0, std::abs(double{numbers[i]}))) << numbers[i];
  }
  const Tensor rounded = gelu(x.to(DType::bfloat16)).to(DType::float32);
  EXPECT_EQ(values(rounded)[0],
            values(gelu(x.rows(0, 1)).to(DType::bfloat16).to(DType::float32))[0]);
}

TEST(JoinBatches, PutsItemsSideBySide) {
  const std::array parts{Tensor::of<float>({1, 2, 3, 4}, {2, 2, 1}),
                         Tensor::of<float>({5, 6}, {2, 1, 1})};
  const Tensor joined = join_batches(parts);
  EXPECT_EQ(joined.shape(), (Shape{2, 3, 1}));
  EXPECT_THAT(values(joined), testing::ElementsAre(1, 2, 5, 3, 4, 6));
  EXPECT_EQ(join_batches({parts.data(), 1}).raw(), parts[0].raw());  // nothing is copied
}

}  // namespace
}  // namespace reelmesh::ops
