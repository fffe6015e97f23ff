// Attention of CogVideoX's video and text tokens: 226 + 13·30·45 = 17,776, batch 2 for guidance.
#include "ops/attention.hpp"

#include <array>
#include <tuple>

#include "ops/cuda/truth/truth.hpp"
#include "tensor/cuda/handles.hpp"

namespace reelmesh::test {
namespace {

class AttentionTruth : public TruthTest<std::tuple<DType, std::int64_t>> {
 protected:
  static constexpr std::int64_t batch = 2, channels = 64;
  static constexpr float scale = 0.125F;
  static std::int64_t tokens() { return size(530, 17776); }

  // Scores have a standard deviation of 2: most of a query's weight is on some hundred keys, so
  // that every tile of keys matters, and weights differ by factors of thousands.
  void SetUp() override {
    TruthTest::SetUp();
    if (IsSkipped()) return;
    std::tie(dtype, heads) = GetParam();
    q = repeated_random_tensor({tokens(), batch, heads, channels}, 1, dtype, 2.0F, test_device());
    kv = repeated_random_tensor({tokens(), batch, 2, heads, channels}, 2, dtype, 1.0F,
                                test_device());
  }
  // Fused attention must be there on every GPU for which cuDNN has it.
  bool has_fused() const {
    return ops::uses_fused_attention(test_device(), dtype, tokens(), channels, {});
  }
  std::string why_no_fused() const {
    return fmt::format("no fused attention to {} keys of {} channels in {} on {} with CUDA {}",
                       tokens(), channels, name_of(dtype), name_of(test_device()), cuda_versions());
  }
  bool may_lack_fused() const {
    return size(1, 0) == 1 || cuda::compute_capability(test_device()) < 80;
  }
  Tensor attend(const Numerics& numerics) const { return ops::attend(q, kv, scale, 1, numerics); }
  Tensor in_float32() const {
    return ops::attend(q.to(DType::float32), kv.to(DType::float32), scale);
  }
  // Bounds for a 16-bit result, with u = unit_roundoff(dtype). Scores, their exponentials and all
  // sums are float32 or better. Rounded are: each weight before it is multiplied with its value,
  // and the result. So |error| ≤ u·(Σ weight·|value| + |result|), and relative to the largest
  // result, which is close to the largest value: at most 2u. Rounding errors of a number are
  // distributed evenly over ±u of its power of two, so their rms is at most u/√3 of the number;
  // those of the weights are independent, and their sum's rms is at most u/√3 of that of the
  // results. Together: √(2/3)·u < u.
  Errors allowed() const { return {2 * unit_roundoff(dtype), unit_roundoff(dtype)}; }

  DType dtype = DType::bfloat16;
  std::int64_t heads = 0;
  Tensor q, kv;
};
INSTANTIATE_TEST_SUITE_P(Of, AttentionTruth,
                         testing::Combine(testing::ValuesIn(half_types),
                                          testing::Values(size(2, 30),
                                                          size(3, 48))),  // CogVideoX-2b, 5b
                         [](const auto& of) {
                           return fmt::format("{}_{}_heads", name_of(std::get<0>(of.param)),
                                              std::get<1>(of.param));
                         });

TEST_P(AttentionTruth, Float32AgreesWithFloat64) {
  const Tensor result = in_float32(), on_host = back(kv);
  for (const std::int64_t head : {std::int64_t{0}, heads - 1}) {
    for (std::int64_t item = 0; item < batch; ++item) {
      // Keys and values of this head.
      std::vector<float> k, v;
      visit_float(dtype, [&](auto type) {
        const auto* all = on_host.data<decltype(type)>();
        for (std::int64_t t = 0; t < tokens(); ++t) {
          const auto* key = all + ((t * batch + item) * 2 * heads + head) * channels;
          const auto* value = key + heads * channels;
          for (std::int64_t c = 0; c < channels; ++c) {
            k.push_back(static_cast<float>(key[c]));
            v.push_back(static_cast<float>(value[c]));
          }
        }
      });
      for (const std::int64_t token : {std::int64_t{0}, tokens() / 2 + 1, tokens() - 1}) {
        const std::int64_t row = (token * batch + item) * heads + head;
        const Tensor query =
            back(q.reshape({tokens() * batch * heads, channels}).rows(row, 1)).to(DType::float32);
        std::array<double, channels> sums{};
        double weights = 0;
        for (std::int64_t t = 0; t < tokens(); ++t) {
          double score = 0;
          for (std::int64_t c = 0; c < channels; ++c) {
            score += double(query.data<float>()[c]) * k[static_cast<std::size_t>(t * channels + c)];
          }
          const double weight = std::exp(score * scale);
          weights += weight;
          for (std::int64_t c = 0; c < channels; ++c) {
            sums[static_cast<std::size_t>(c)] +=
                weight * v[static_cast<std::size_t>(t * channels + c)];
          }
        }
        Tensor expected = Tensor::empty({channels}, DType::float32);
        for (std::int64_t c = 0; c < channels; ++c) {
          expected.data<float>()[c] =
              static_cast<float>(sums[static_cast<std::size_t>(c)] / weights);
        }
        const Tensor found =
            back(result.reshape({tokens() * batch * heads, channels}).rows(row, 1));
        EXPECT_LE(relative_error(found, expected), float32_tolerance)
            << "token " << token << ", item " << item << ", head " << head;
      }
    }
  }
}

TEST_P(AttentionTruth, OwnAgreesWithFloat32) {
  expect_errors("own attention", errors(attend({.own_attention = true}), in_float32()), allowed());
}

TEST_P(AttentionTruth, FusedAgreesWithFloat32AndOwn) {
  if (!has_fused()) {
    ASSERT_TRUE(may_lack_fused()) << why_no_fused();
    GTEST_SKIP() << why_no_fused();
  }
  const Tensor fused = attend({});
  expect_errors("fused attention", errors(fused, in_float32()), allowed());
  // Both have errors.
  expect_errors("fused against own", errors(fused, attend({.own_attention = true})),
                {2 * allowed().max, 2 * allowed().rms});
}

// What ranks compute of a whole: some of the queries, some of the heads.
TEST_P(AttentionTruth, FusedHasTheSameBitsForPartsOfTheQueriesAndHeads) {
  if (!has_fused()) {
    ASSERT_TRUE(may_lack_fused()) << why_no_fused();
    GTEST_SKIP() << why_no_fused();
  }
  const Tensor all = back(attend({}));
  const std::int64_t n = tokens();
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, n / 4},
                                     {n / 4 + 3, n / 2},
                                     {n - n / 16, n / 16},
                                     {n - 1, 1}}) {
    EXPECT_TRUE(same_bits(back(ops::attend(q.rows(first, count), kv, scale)),
                          all.rows(first, count).clone()))
        << count << " queries from " << first << " on";
  }
  // Heads [first, first + count) of [row, part, head, channel], with all batch items and tokens.
  const auto some_heads = [&](const Tensor& x, std::int64_t parts, std::int64_t first,
                              std::int64_t count) {
    const std::int64_t rows = n * batch * parts, head = channels * size_of(dtype);
    Shape shape = x.shape();
    shape[shape.size() - 2] = count;
    Tensor some = Tensor::empty(shape, dtype);
    ops::parallel_for(rows, 1024, [&](std::int64_t row) {
      std::memcpy(static_cast<std::byte*>(some.raw()) + row * count * head,
                  static_cast<const std::byte*>(x.raw()) + (row * heads + first) * head,
                  static_cast<std::size_t>(count * head));
    });
    return some;
  };
  const Tensor queries = back(q), keys_values = back(kv);
  for (const auto& [first, count] :
       {std::pair<std::int64_t, std::int64_t>{0, heads / 2}, {heads - 1, 1}}) {
    const Tensor some = back(ops::attend(there(some_heads(queries, 1, first, count)),
                                         there(some_heads(keys_values, 2, first, count)), scale));
    EXPECT_TRUE(same_bits(some, some_heads(all, 1, first, count)))
        << count << " heads from " << first << " on";
  }
}

}  // namespace
}  // namespace reelmesh::test
