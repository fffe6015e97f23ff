#include "ops/attention.hpp"

#include "ops/cuda/ops.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

class AttentionKernel : public KernelTest {
 protected:
  static Tensor random(const Shape& shape, unsigned seed) {
    return random_tensor(shape, seed, GetParam());
  }
  // Attention of qkv [token, batch, 3, head, channel], with all keys in one add().
  static Tensor attend(const Tensor& qkv, float scale, const Tensor& bias = {}) {
    const Tensor x = there(qkv);
    const auto work = gpu::attention_work({x, 0}, scale, there(bias), {});
    work->add({x, 1}, {x, 2});
    return back(work->finish());
  }
  // Reference in float64, of the values as rounded to their type.
  static Tensor exact(const Tensor& qkv, float scale, const Tensor& bias = {}) {
    const Tensor x = qkv.to(DType::float32);
    const std::int64_t tokens = x.shape(0), batch = x.shape(1), heads = x.shape(3), n = x.shape(4);
    Tensor out = Tensor::empty({tokens, batch, heads, n}, DType::float32);
    const auto at = [&](std::int64_t token, std::int64_t b, std::int64_t part, std::int64_t h) {
      return x.data<float>() + (((token * batch + b) * 3 + part) * heads + h) * n;
    };
    std::vector<double> weights(static_cast<std::size_t>(tokens));
    for (std::int64_t q = 0; q < tokens; ++q) {
      for (std::int64_t i = 0; i < batch * heads; ++i) {
        const std::int64_t b = i / heads, h = i % heads;
        double sum = 0;
        for (std::int64_t k = 0; k < tokens; ++k) {
          double score = 0;
          for (std::int64_t c = 0; c < n; ++c)
            score += double(at(q, b, 0, h)[c]) * at(k, b, 1, h)[c];
          score *= scale;
          if (!bias.empty()) score += bias.data<float>()[(h * tokens + q) * tokens + k];
          sum += weights[static_cast<std::size_t>(k)] = std::exp(score);
        }
        float* y = out.data<float>() + ((q * batch + b) * heads + h) * n;
        for (std::int64_t c = 0; c < n; ++c) {
          double value = 0;
          for (std::int64_t k = 0; k < tokens; ++k) {
            value += weights[static_cast<std::size_t>(k)] * at(k, b, 2, h)[c];
          }
          y[c] = static_cast<float>(value / sum);
        }
      }
    }
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Types, AttentionKernel, all_types, type_name);

TEST_P(AttentionKernel, IsSoftmaxOfTheScores) {
  for (const std::int64_t channels : {6, 16, 64, 72, 128, 136}) {
    for (const std::int64_t tokens : {1, 33, 150}) {
      const Tensor qkv = random({tokens, 2, 3, 2, channels}, 1);
      const float scale = 1.0F / std::sqrt(static_cast<float>(channels));
      EXPECT_LT(relative_error(attend(qkv, scale), exact(qkv, scale)), tolerance())
          << channels << " channels, " << tokens << " tokens";
    }
  }
}

TEST_P(AttentionKernel, AddsTheBias) {
  for (const std::int64_t channels : {64, 130}) {
    const Tensor qkv = random({70, 1, 3, 3, channels}, 1), bias = random_tensor({3, 70, 70}, 2);
    EXPECT_LT(relative_error(attend(qkv, 0.125F, bias), exact(qkv, 0.125F, bias)), tolerance());
  }
}

TEST_P(AttentionKernel, KeysAreMaskedByAnInfiniteBias) {
  const std::int64_t tokens = 140;
  const Tensor qkv = random({tokens, 1, 3, 1, 64}, 1);
  Tensor bias = Tensor::zeros({1, tokens, tokens}, DType::float32);
  for (std::int64_t q = 0; q < tokens; ++q) {
    for (std::int64_t k = 0; k < tokens; ++k) {
      // For the last queries all keys of the first tiles are masked.
      if (k / 70 != q / 70) bias.data<float>()[q * tokens + k] = -INFINITY;
    }
  }
  EXPECT_LT(relative_error(attend(qkv, 0.125F, bias), exact(qkv, 0.125F, bias)), tolerance());
}

TEST_P(AttentionKernel, LargeScoresDoNotOverflow) {
  const Tensor qkv = random_tensor({40, 1, 3, 1, 64}, 1, GetParam(), 8.0F);
  EXPECT_LT(relative_error(attend(qkv, 1.0F), exact(qkv, 1.0F)), 4 * tolerance());
}

TEST_P(AttentionKernel, KeysMayComeInParts) {
  const std::int64_t tokens = 1024 + 37, block = ops::Attention::block_keys;
  for (const std::int64_t channels : {64, 132}) {
    const Tensor q = random({19, 1, 1, 2, channels}, 1),
                 kv = random({tokens, 1, 2, 2, channels}, 2);
    const Tensor queries = there(q), keys = there(kv);
    const auto once = gpu::attention_work({queries, 0}, 0.125F, {}, {});
    once->add({keys, 0}, {keys, 1});
    const auto parts = gpu::attention_work({queries, 0}, 0.125F, {}, {});
    for (std::int64_t first = 0; first < tokens; first += block) {
      const Tensor some = keys.rows(first, std::min(block, tokens - first));
      parts->add({some, 0}, {some, 1});
    }
    const Tensor result = back(parts->finish());
    EXPECT_TRUE(same_bits(back(once->finish()), result));
    ops::Attention on_cpu(q.reshape({19, 1, 2, channels}), 0.125F);
    on_cpu.add(kv);
    EXPECT_LT(relative_error(result, on_cpu.finish()), tolerance());
  }
}

TEST_P(AttentionKernel, AgreesWithTheCpuAtRealSizes) {
  for (const std::int64_t channels : {64, 72, 128}) {
    const Tensor qkv = random({size(257, 2049), 1, 3, 2, channels}, 1);
    const float scale = 1.0F / std::sqrt(static_cast<float>(channels));
    EXPECT_LT(relative_error(attend(qkv, scale), ops::attention(qkv, scale)), tolerance());
  }
}

}  // namespace
}  // namespace reelmesh::test
