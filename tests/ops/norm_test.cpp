#include "ops/norm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/pointwise.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  const Tensor x = random_tensor({5, 37}, 1), w = random_tensor({37}, 2);
  const Tensor y = rms_norm(x, w, 1e-6F);
  for (std::int64_t r = 0; r < 5; ++r) {
    double squares = 0;
    for (std::int64_t i = 0; i < 37; ++i)
      squares += std::pow(double(x.data<float>()[r * 37 + i]), 2);
    for (std::int64_t i = 0; i < 37; ++i) {
      EXPECT_NEAR(y.data<float>()[r * 37 + i],
                  x.data<float>()[r * 37 + i] * w.data<float>()[i] / std::sqrt(squares / 37 + 1e-6),
                  3e-6);
    }
  }
}

TEST(ChangeSums, AddUpEachRow) {
  for (const DType type : {DType::float32, DType::bfloat16}) {
    const Tensor x = random_tensor({5, 2, 37}, 1).to(type),
                 before = random_tensor({5, 2, 37}, 2).to(type);
    const Tensor sums = change_sums(x, before);
    ASSERT_EQ(sums.shape(), (Shape{10, 2}));
    const Tensor a = x.to(DType::float32), b = before.to(DType::float32);
    for (std::int64_t row = 0; row < 10; ++row) {
      double changes = 0, values = 0;
      for (std::int64_t i = row * 37; i < (row + 1) * 37; ++i) {
        changes += std::abs(double(a.data<float>()[i]) - double(b.data<float>()[i]));
        values += std::abs(double(b.data<float>()[i]));
      }
      EXPECT_NEAR(sums.data<float>()[2 * row], changes, 1e-5 * changes);
      EXPECT_NEAR(sums.data<float>()[2 * row + 1], values, 1e-5 * values);
    }
  }
}

TEST(ModulatedLayerNorm, ScalesAndShiftsEachBatchItemByItsOwnRow) {
  const Tensor x = random_tensor({4, 2, 24}, 1), w = random_tensor({24}, 2),
               b = random_tensor({24}, 3);
  const Tensor table = random_tensor({2, 3 * 24}, 4);
  const Tensor plain = layer_norm(x, w, b, 1e-5F);
  Tensor out = Tensor::empty(x.shape(), DType::float32);
  modulated_layer_norm(x, w, b, 1e-5F, {table, 2, 1}, out);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t batch = i / 24 % 2, c = i % 24;
    const float* m = table.data<float>() + batch * 72;
    EXPECT_NEAR(out.data<float>()[i], plain.data<float>()[i] * (1 + m[24 + c]) + m[48 + c], 1e-5);
  }
  double mean = 0, squares = 0;
  for (std::int64_t i = 0; i < 24; ++i) {
    const double z = (plain.data<float>()[i] - b.data<float>()[i]) / w.data<float>()[i];
    mean += z;
    squares += z * z;
  }
  EXPECT_NEAR(mean / 24, 0, 1e-5);
  EXPECT_NEAR(squares / 24, 1, 1e-3);
}

TEST(AddGated, AddsTheChunkOfTheBatchItem) {
  Tensor x = random_tensor({3, 2, 8}, 1);
  const Tensor y = random_tensor({3, 2, 8}, 2), table = random_tensor({2, 16}, 3),
               before = x.clone();
  add_gated(x, y, table, 1);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float gate = table.data<float>()[i / 8 % 2 * 16 + 8 + i % 8];
    EXPECT_FLOAT_EQ(x.data<float>()[i], before.data<float>()[i] + gate * y.data<float>()[i]);
  }
}

// One call for text and video has the bits of a call for each.
TEST(FirstTokens, UseOtherChunksAndAreNotRotated) {
  const std::int64_t tokens = 5, batch = 2, n = 24;
  const Tensor x = random_tensor({tokens, batch, n}, 1), y = random_tensor({tokens, batch, n}, 2);
  const Tensor w = random_tensor({n}, 3), b = random_tensor({n}, 4);
  const Tensor table = random_tensor({batch, 6 * n}, 5);
  const HeadNorm norm{random_tensor({8}, 6), random_tensor({8}, 7)};
  for (const std::int64_t text : {std::int64_t{0}, std::int64_t{2}, tokens}) {
    const std::int64_t video = tokens - text;
    const Tensor c = random_tensor({video, 8}, 8), s = random_tensor({video, 8}, 9);
    Tensor normed = x.clone(), normed_each = x.clone(), sum = x.clone(), sum_each = x.clone();
    Tensor heads = x.clone().reshape({tokens, batch, 1, 3, 8}), heads_each = heads.clone();
    modulated_layer_norm(normed, w, b, 1e-5F, {table, 0, 1, {text, 3}}, normed);
    add_gated(sum, y, table, 2, {text, 3});
    normalise_and_rotate(heads, norm, c, s, text);
    const auto each = [&](std::int64_t first, std::int64_t count, int chunk, const Tensor& cosines,
                          const Tensor& sines) {
      Tensor a = normed_each.rows(first, count), g = sum_each.rows(first, count),
             h = heads_each.rows(first, count);
      modulated_layer_norm(a, w, b, 1e-5F, {table, chunk, chunk + 1}, a);
      add_gated(g, y.rows(first, count), table, chunk + 2);
      normalise_and_rotate(h, norm, cosines, sines);
    };
    each(0, text, 3, {}, {});
    each(text, video, 0, c, s);
    EXPECT_TRUE(same_bits(normed, normed_each)) << text;
    EXPECT_TRUE(same_bits(sum, sum_each)) << text;
    EXPECT_TRUE(same_bits(heads, heads_each)) << text;
  }
}

// The norm is over all heads, the rotation the same in each; other parts are left alone.
TEST(NormTogetherAndRotate, EqualsAPlainLoop) {
  const std::int64_t tokens = 3, items = 2, heads = 3, n = 10;
  for (const bool rotates : {false, true}) {
    Tensor x = random_tensor({tokens, items, 2, heads, n}, 1);
    const Tensor before = x.clone(), weight = random_tensor({heads * n}, 2);
    const Tensor c = rotates ? random_tensor({tokens, n}, 3) : Tensor(),
                 s = rotates ? random_tensor({tokens, n}, 4) : Tensor();
    norm_together_and_rotate(x, weight, 1e-6F, c, s);
    for (std::int64_t row = 0; row < tokens * items; ++row) {
      const float* from = before.data<float>() + row * 2 * heads * n;
      const float* found = x.data<float>() + row * 2 * heads * n;
      double squares = 0;
      for (std::int64_t i = 0; i < heads * n; ++i) squares += double(from[i]) * from[i];
      const double rstd = 1 / std::sqrt(squares / double(heads * n) + 1e-6);
      for (std::int64_t i = 0; i < heads * n; ++i) {
        const auto normed = [&](std::int64_t j) {
          return from[j] * rstd * weight.data<float>()[j];
        };
        double expected = normed(i);
        if (rotates) {
          const std::int64_t angle = row / items * n + i % n;
          const double other = i % 2 == 0 ? -normed(i + 1) : normed(i - 1);
          expected = expected * c.data<float>()[angle] + other * s.data<float>()[angle];
        }
        EXPECT_NEAR(found[i], expected, 2e-6 * (1 + std::abs(expected))) << row << ' ' << i;
        EXPECT_EQ(found[heads * n + i], from[heads * n + i]);
      }
    }
  }
}

// Float32 tables of shifts, scales and gates beside 16-bit tokens are not rounded.
TEST(ModulatedNorm, TakesTablesOfFloat32) {
  const Tensor x = random_tensor({4, 2, 24}, 1).to(DType::bfloat16), y = x.clone();
  Tensor ones = Tensor::empty({24}, DType::float32);
  std::ranges::fill(ones.span<float>(), 1.0F);
  const Tensor zeros = Tensor::zeros({24}, DType::float32), table = random_tensor({1, 72}, 2);
  Tensor found = Tensor::empty(x.shape(), DType::bfloat16);
  modulated_layer_norm(x, ones, zeros, 1e-6F, {table, 0, 1, {}}, found);
  Tensor wide = Tensor::empty(x.shape(), DType::float32);
  modulated_layer_norm(x.to(DType::float32), ones, zeros, 1e-6F, {table, 0, 1, {}}, wide);
  EXPECT_TRUE(same_bits(found, wide.to(DType::bfloat16)));
  Tensor sum = x.clone(), wide_sum = x.to(DType::float32).clone();
  add_gated(sum, y, table, 2);
  add_gated(wide_sum, y.to(DType::float32), table, 2);
  EXPECT_TRUE(same_bits(sum, wide_sum.to(DType::bfloat16)));
}

TEST(NormaliseAndRotate, KeepsValuesAndTurnsPairs) {
  Tensor kv = random_tensor({3, 1, 2, 2, 8}, 1);
  const Tensor before = kv.clone();
  const Tensor ones = Tensor::of<float>({1, 1, 1, 1, 1, 1, 1, 1}, {8});
  const Tensor zeros = Tensor::zeros({8}, DType::float32);
  Tensor cosines = Tensor::empty({3, 8}, DType::float32),
         sines = Tensor::empty({3, 8}, DType::float32);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t i = 0; i < 8; ++i) {
      cosines.data<float>()[t * 8 + i] = std::cos(float(t));
      sines.data<float>()[t * 8 + i] = std::sin(float(t));
    }
  }
  normalise_and_rotate(kv, {ones, zeros, 1e-6F}, cosines, sines);
  for (std::int64_t t = 0; t < 3; ++t) {
    const float* q = kv.data<float>() + t * 32;
    EXPECT_EQ(q[16], before.data<float>()[t * 32 + 16]) << "values are left alone";
    float mean = 0;
    const float* x = before.data<float>() + t * 32;
    for (int i = 0; i < 8; ++i) mean += x[i] / 8;
    float variance = 0;
    for (int i = 0; i < 8; ++i) variance += (x[i] - mean) * (x[i] - mean) / 8;
    const float a = (x[0] - mean) / std::sqrt(variance), b = (x[1] - mean) / std::sqrt(variance);
    EXPECT_NEAR(q[0], a * std::cos(float(t)) - b * std::sin(float(t)), 1e-5);
    EXPECT_NEAR(q[1], b * std::cos(float(t)) + a * std::sin(float(t)), 1e-5);
  }
}

TEST(HeadNorm, ByRootMeanSquareSubtractsNothing) {
  Tensor qkv = random_tensor({2, 1, 3, 2, 8}, 12);
  const Tensor before = qkv.clone();
  const Tensor weight = random_tensor({8}, 13);
  normalise_and_rotate(qkv, {weight, {}}, {}, {});
  for (std::int64_t head = 0; head < 2 * 3 * 2; ++head) {
    const float* x = before.data<float>() + head * 8;
    double squares = 0;
    for (int i = 0; i < 8; ++i) squares += double(x[i]) * x[i] / 8;
    const bool other = head / 2 % 3 != 0;
    for (int i = 0; i < 8; ++i) {
      const double expected = other ? x[i] : x[i] / std::sqrt(squares) * weight.data<float>()[i];
      EXPECT_NEAR(qkv.data<float>()[head * 8 + i], expected, 1e-5);
    }
  }
}

TEST(GroupSums, OfCellsAreThoseOfAPlainLoop) {
  for (const std::int64_t cell : {1, 2}) {
    const Tensor x = random_tensor({3, 4, 6, 8}, 1);
    const auto sums = group_sums(x, 2, cell);
    ASSERT_EQ(sums.size(), 4U);
    double expected[4] = {};
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double v = x.data<float>()[i];
      expected[i % 8 / 4] += v;
      expected[2 + i % 8 / 4] += v * v;
    }
    for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(sums[k].value(), expected[k], 1e-9);
  }
  EXPECT_THROW(group_sums(random_tensor({1, 3, 3, 4}, 1), 2, 2), Error);
}

TEST(ExactSum, HasTheSameBitsInAnyOrderAndAnyParts) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> terms;
  for (int i = 0; i < 5000; ++i)
    terms.push_back(std::ldexp(normal(random), int(random() % 60) - 25));
  ExactSum expected;
  double plain = 0;
  for (const double term : terms) {
    expected.add(term);
    plain += term;
  }
  EXPECT_NEAR(expected.value() / plain, 1, 1e-12);
  for (int i = 0; i < 10; ++i) {
    std::shuffle(terms.begin(), terms.end(), random);
    std::vector<ExactSum> parts(7);
    for (const double term : terms) parts[random() % 7].add(term);
    ExactSum sum;
    ExactSum carried;
    for (const ExactSum& part : parts) {
      sum.add(part);
      carried.add(part.carried());
    }
    EXPECT_EQ(sum.value(), expected.value());
    const ExactSum once = carried.carried(), all = expected.carried();
    EXPECT_TRUE(once.high == all.high && once.middle == all.middle && once.low == all.low);
    EXPECT_NEAR(once.value() / plain, 1, 1e-12);
    EXPECT_TRUE(all.low >= 0 && all.low < (1LL << 40) && all.middle >= 0 &&
                all.middle < (1LL << 40));
  }
}

TEST(ExactSum, KeepsWhatCancels) {
  ExactSum sum;
  for (const double term : {0x1p79, 0.25, -3.0, -0x1p79, 0x1p-40}) sum.add(term);
  EXPECT_EQ(sum.value(), -2.75 + 0x1p-40);
}

TEST(ExactSum, IsNotANumberBeyondItsRange) {
  for (const double term : {0x1p80, -0x1p81, double(INFINITY), double(NAN)}) {
    ExactSum sum;
    sum.add(1.0);
    sum.add(term);
    sum.add(-term);
    EXPECT_TRUE(std::isnan(sum.value())) << term;
  }
}

TEST(SpatialNorm, NormalisesScalesShiftsAndActivates) {
  const Tensor x = random_tensor({3, 4, 6, 4}, 1);
  SpatialNorm norm;
  norm.statistics = {Tensor::of<float>({0.5F, -0.25F}, {2}), Tensor::of<float>({2.0F, 0.5F}, {2})};
  norm.weight = random_tensor({4}, 2);
  norm.bias = random_tensor({4}, 3);
  norm.scale = random_tensor({2, 2, 3, 4}, 4);
  norm.shift = random_tensor({2, 2, 3, 4}, 5);
  norm.latent_frame = {0, 1, 1};
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  spatial_norm_silu(x, norm, y);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t c = i % 4, column = i / 4 % 6, row = i / 24 % 4, frame = i / 96;
    const std::int64_t z = (((frame == 0 ? 0 : 1) * 2 + row / 2) * 3 + column / 2) * 4 + c;
    const auto g = std::size_t(c / 2);
    const double n = (double(x.data<float>()[i]) - norm.statistics.mean.data<float>()[g]) *
                         norm.statistics.rstd.data<float>()[g] * norm.weight.data<float>()[c] +
                     norm.bias.data<float>()[c];
    const double v = n * norm.scale.data<float>()[z] + norm.shift.data<float>()[z];
    EXPECT_NEAR(y.data<float>()[i], v / (1 + std::exp(-v)), 1e-5);
  }
}

TEST(Patch, GoesThereAndBack) {
  for (const Patch patch : {Patch{1, 2, 2}, Patch{2, 2, 2}}) {
    const Tensor latents = random_tensor({4, 3, 6, 8}, 1);
    const Tensor tokens = patchify(latents, patch, DType::float32);
    EXPECT_EQ(tokens.shape(), (Shape{4 / patch.frames * 3 * 4, 3 * patch.frames * 4}));
    const Tensor back = unpatchify(tokens.reshape({tokens.shape(0), 1, tokens.shape(1)}), 0, patch,
                                   latents.shape());
    EXPECT_TRUE(same_bits(back, latents));
    // Feature order: channel, frame, row, column. In token 1: channel 1, second row, first column.
    const std::int64_t feature = 1 * patch.frames * 4 + 2;
    EXPECT_EQ(tokens.data<float>()[tokens.shape(1) + feature],
              latents.data<float>()[(1 * 6 + 1) * 8 + 2]);
  }
}

TEST(Pixels, RoundHalfToEvenAndClamp) {
  const Tensor x = Tensor::of<float>({-2.0F, -1.0F, 0.0F, 1.0F, 3.0F, NAN, 1.0F / 255.0F}, {7});
  const Tensor y = to_pixels(x);
  EXPECT_THAT(std::vector<int>(y.data<std::uint8_t>(), y.data<std::uint8_t>() + 7),
              ::testing::ElementsAre(0, 0, 128, 255, 255, 0, 128));
}

TEST(FiniteCheck, FindsOneValueAnywhere) {
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      for (const std::int64_t at : {0, 16383, 16384, 39999}) {
        FiniteCheck check(Device{});
        Tensor x = random_tensor({2, 20000}, 1);
        check.add(x.to(type));
        check.add(Tensor::empty({0, 3}, type));
        EXPECT_TRUE(check.finite());
        x.data<float>()[at] = value;
        check.add(x.to(type));
        check.add(Tensor::zeros({4}, type));
        EXPECT_FALSE(check.finite()) << value << " at " << at;
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh::ops
