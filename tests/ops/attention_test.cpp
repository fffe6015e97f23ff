#include "ops/attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/onednn.hpp"
#include "ops/products.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;

Tensor plain_attention(const Tensor& input, float scale, const Tensor& bias) {
  const Tensor qkv = input.to(DType::float32);
  const std::int64_t tokens = qkv.shape(0), batch = qkv.shape(1), heads = qkv.shape(3);
  const std::int64_t n = qkv.shape(4);
  const auto at = [&](std::int64_t t, std::int64_t b, std::int64_t part, std::int64_t h) {
    return qkv.data<float>() + (((t * batch + b) * 3 + part) * heads + h) * n;
  };
  Tensor out = Tensor::empty({tokens, batch, heads, n}, DType::float32);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t q = 0; q < tokens; ++q) {
        std::vector<double> scores(std::size_t(tokens), 0.0), sum(std::size_t(n), 0.0);
        for (std::int64_t k = 0; k < tokens; ++k) {
          double& score = scores[std::size_t(k)];
          for (std::int64_t c = 0; c < n; ++c)
            score += double(at(q, b, 0, h)[c]) * at(k, b, 1, h)[c];
          score *= scale;
          if (!bias.empty()) score += bias.data<float>()[(h * tokens + q) * tokens + k];
        }
        const double largest = std::ranges::max(scores);
        double total = 0;
        for (std::int64_t k = 0; k < tokens; ++k) {
          const double share = std::exp(scores[std::size_t(k)] - largest);
          total += share;
          for (std::int64_t c = 0; c < n; ++c) {
            sum[std::size_t(c)] += share * at(k, b, 2, h)[c];
          }
        }
        for (std::int64_t c = 0; c < n; ++c) {
          out.data<float>()[((q * batch + b) * heads + h) * n + c] =
              float(sum[std::size_t(c)] / total);
        }
      }
    }
  }
  return out;
}

TEST(Attention, EqualsAPlainSoftmax) {
  for (const Shape& size : {Shape{5, 1, 3, 2, 16}, Shape{64, 2, 3, 1, 64}, Shape{513, 1, 3, 2, 16},
                            Shape{700, 1, 3, 1, 64}}) {
    const float scale = 1 / std::sqrt(float(size[4]));
    const Tensor qkv = random_tensor(size, 4);
    EXPECT_LT(relative_error(attention(qkv, scale), plain_attention(qkv, scale, {})), 3e-6);
    const Tensor half = qkv.to(DType::bfloat16);
    EXPECT_LT(relative_error(attention(half, scale), plain_attention(half, scale, {})), 1e-2);
  }
}

TEST(Attention, ProductsInBfloat16AgreeWithThoseInFloat32) {
  const Tensor qkv = random_tensor({700, 1, 3, 2, 64}, 4, DType::bfloat16);
  choose_products(has_bfloat16_products() ? Products::bfloat16 : Products::float32);
  const Tensor out = attention(qkv, 0.125F);
  choose_products(Products::automatic);
  EXPECT_LT(relative_error(out, plain_attention(qkv, 0.125F, {})), 1e-2);
}

TEST(Attention, AddsABias) {
  const Tensor qkv = random_tensor({77, 2, 3, 3, 8}, 5, DType::float32, 0.5F);
  const Tensor bias = random_tensor({3, 77, 77}, 6);
  EXPECT_LT(relative_error(attention(qkv, 1, bias), plain_attention(qkv, 1, bias)), 3e-6);
}

// Scores of some hundreds, whose exponentials have no float32; the largest may be that of any key,
// also of those beside whole vectors.
TEST(Attention, SurvivesLargeScores) {
  for (const std::int64_t tokens : {600, 90, 23}) {
    const Tensor qkv = random_tensor({tokens, 1, 3, 1, 16}, 7, DType::float32, 30.0F);
    constexpr float scale = 1.0F / 16;
    EXPECT_LT(relative_error(attention(qkv, scale), plain_attention(qkv, scale, {})), 1e-3)
        << tokens;
  }
  const Tensor qkv = random_tensor({600, 1, 3, 1, 16}, 7, DType::float32, 30.0F);
  const Tensor out = attention(qkv, 1);
  for (const float x : out.span<float>()) ASSERT_TRUE(std::isfinite(x));
}

// Tokens [first, first + count) of parts [part, part + parts) of qkv; q, k, v are parts 0, 1, 2.
Tensor token_parts(const Tensor& qkv, std::int64_t first, std::int64_t count, std::int64_t part,
                   std::int64_t parts) {
  const std::int64_t batch = qkv.shape(1), run = qkv.shape(3) * qkv.shape(4);
  Tensor out = Tensor::empty({count, batch, parts, qkv.shape(3), qkv.shape(4)}, qkv.dtype());
  const std::int64_t size = size_of(qkv.dtype());
  for (std::int64_t i = 0; i < count * batch; ++i) {
    std::copy_n(
        static_cast<const std::byte*>(qkv.raw()) + ((first * batch + i) * 3 + part) * run * size,
        parts * run * size, static_cast<std::byte*>(out.raw()) + i * parts * run * size);
  }
  return out;
}

TEST(Attention, KeysInSeveralCallsGiveTheSameBits) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const std::int64_t tokens = 1300;
    const Tensor qkv = random_tensor({tokens, 2, 3, 2, 16}, 9, dtype);
    const Tensor whole = attention(qkv, 0.25F);
    const std::vector<std::vector<std::int64_t>> divisions{
        {1300}, {512, 788}, {1024, 276}, {512, 512, 276}, {0, 512, 0, 788}};
    // Any range of the queries.
    for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, tokens}, {77, 100}, {1299, 1}, {5, 0}}) {
      for (const auto& division : divisions) {
        Attention part(token_parts(qkv, first, count, 0, 1).reshape({count, 2, 2, 16}), 0.25F);
        std::int64_t done = 0;
        for (const std::int64_t keys : division) {
          part.add(token_parts(qkv, done, keys, 1, 2));
          done += keys;
        }
        EXPECT_TRUE(same_bits(part.finish(), whole.rows(first, count)));
      }
    }
  }
}

// The rows of one sequence, if x has the rows of `sequences` equally long ones.
Tensor of_sequence(const Tensor& x, std::int64_t sequence, std::int64_t sequences) {
  const std::int64_t rows = x.shape(0) / sequences;
  return x.rows(sequence * rows, rows);
}

TEST(Attention, KeysOfAllSequencesMayComeInParts) {
  const std::int64_t sequences = 3, keys = 700;
  const Tensor q = random_tensor({sequences * 20, 1, 2, 16}, 13);
  const Tensor kv = random_tensor({sequences * keys, 1, 2, 2, 16}, 14);
  // Keys [first, first + count) of each sequence.
  const auto part = [&](std::int64_t first, std::int64_t count) {
    Tensor out = Tensor::empty({sequences * count, 1, 2, 2, 16}, DType::float32);
    for (std::int64_t i = 0; i < sequences; ++i) {
      out.rows(i * count, count).copy_from(of_sequence(kv, i, sequences).rows(first, count));
    }
    return out;
  };
  Attention whole(q, 0.25F, sequences), parts(q, 0.25F, sequences);
  whole.add(kv);
  parts.add(part(0, 512));
  parts.add(part(512, keys - 512));
  EXPECT_TRUE(same_bits(whole.finish(), parts.finish()));
}

TEST(Attention, AllKeysAtOnceHaveTheBitsOfParts) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const std::int64_t sequences : {1, 3}) {
      const Tensor q = random_tensor({sequences * 70, 2, 3, 24}, 17, dtype);
      const Tensor kv = random_tensor({sequences * 600, 2, 2, 3, 24}, 18, dtype);
      Attention parts(q, 0.3F, sequences);
      parts.add(kv);
      EXPECT_TRUE(same_bits(attend(q, kv, 0.3F, sequences), parts.finish()));
    }
  }
}

TEST(Attention, SequencesAreEquallyLong) {
  const Tensor q = random_tensor({6, 1, 1, 16}, 15);
  EXPECT_THROW(Attention(q, 1, 4), Error);
  EXPECT_THROW(Attention(q, 1, 0), Error);
  EXPECT_THROW(Attention(q, 1, -1), Error);
  Attention attention(q, 1, 3);
  EXPECT_THROW(attention.add(random_tensor({5, 1, 2, 1, 16}, 16)), Error);
  EXPECT_THROW(attention.finish(), Error);
  Attention none(q.rows(0, 0), 1, 0);
  EXPECT_EQ(none.finish().shape(), (Shape{0, 1, 1, 16}));
}

TEST(Attention, OnlyTheLastKeysMayBeAnyNumber) {
  const Tensor qkv = random_tensor({100, 1, 3, 1, 16}, 10);
  Attention part(token_parts(qkv, 0, 5, 0, 1).reshape({5, 1, 1, 16}), 1);
  EXPECT_THROW(part.finish(), Error);
  part.add(token_parts(qkv, 0, 99, 1, 2));
  EXPECT_THROW(part.add(token_parts(qkv, 99, 1, 1, 2)), Error);
}

TEST(Attention, NoHeadsIsNoWork) {
  EXPECT_EQ(attention(Tensor::empty({9, 2, 3, 0, 16}, DType::float32), 1).shape(),
            (Shape{9, 2, 0, 16}));
}

}  // namespace
}  // namespace reelmesh::ops
