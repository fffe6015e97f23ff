#include "ops/pointwise.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "support/random_tensor.hpp"

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

// SplitMix64 as published: the number at this place of a sequence.
std::uint64_t number_at(std::uint64_t key, std::uint64_t place) {
  std::uint64_t z = key + place * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

TEST(Dropped, HasZerosWhereTheNumberOfThePlaceIsSmall) {
  constexpr std::int64_t columns = 1100, first = 3, width = 1090;
  const DropoutMask mask{
      .probability = 0.3, .key = random_key("a.b.dropout", 7), .columns = columns};
  const std::vector<std::int32_t> rows{5, 0, 70'000'000};
  const Tensor x = test::random_tensor({3, 1, width}, 1);
  const Tensor y = dropped(x, mask, Tensor::of<std::int32_t>(rows, {3}), first);
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < width; ++c) {
      const auto place =
          static_cast<std::uint64_t>(std::int64_t{rows[std::size_t(r)]} * columns + first + c);
      const bool is_zero =
          static_cast<double>(number_at(mask.key, place) >> 32) < 0.3 * 4294967296.0;
      const float expected =
          is_zero ? 0 : x.data<float>()[r * width + c] * static_cast<float>(1 / 0.7);
      EXPECT_EQ(y.data<float>()[r * width + c], expected) << r << ", " << c;
    }
  }
}

TEST(Dropped, HasTheShareOfZerosAndTheMean) {
  for (const double probability : {0.0, 0.1, 0.5, 0.99}) {
    constexpr std::int64_t count = 1'000'000;
    const Tensor ones = Tensor::of<float>(std::vector<float>(count, 1.0F), {1000, 1000});
    const DropoutMask mask{probability, random_key("layer", 1), 1000};
    const Tensor y = dropped(ones, mask);
    std::int64_t zeros = 0;
    for (const float value : y.span<float>()) zeros += value == 0 ? 1 : 0;
    const double deviation = std::sqrt(probability * (1 - probability) / count);
    EXPECT_NEAR(static_cast<double>(zeros) / count, probability, 4 * deviation);
    EXPECT_EQ(*std::ranges::max_element(y.span<float>()),
              static_cast<float>(1 / (1 - probability)));
    const Tensor other = dropped(ones, {probability, random_key("layer", 2), 1000});
    EXPECT_EQ(test::same_bits(other, y), probability == 0);
    EXPECT_TRUE(test::same_bits(dropped(ones.to(DType::bfloat16), mask), y.to(DType::bfloat16)));
  }
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
