// Attention with all keys in one call, for which cuDNN may have a fused kernel.
#include "kernels/test_device.hpp"
#include "ops/attention.hpp"

namespace reelmesh::test {
namespace {

using ops::attend;

class AttendKernel : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped()) return;
    if (!at_once(1024, 64)) {
      GTEST_SKIP() << "cuDNN has no attention of " << name_of(GetParam()) << " on "
                   << to_string(test_device());
    }
  }

  // Whether cuDNN's kernel is used for this number of keys and of channels.
  static bool at_once(std::int64_t keys, std::int64_t channels, const Numerics& numerics = {}) {
    return ops::uses_fused_attention(test_device(), GetParam(), keys, channels, numerics);
  }
  static Tensor random(const Shape& shape, unsigned seed) {
    return random_tensor(shape, seed, GetParam());
  }
  static Tensor attend_there(const Tensor& q, const Tensor& kv, std::int64_t sequences = 1,
                             const Numerics& numerics = {}) {
    return back(attend(there(q), there(kv), 0.1F, sequences, numerics));
  }
  static Tensor on_cpu(const Tensor& q, const Tensor& kv) {
    return attend(q.to(DType::float32), kv.to(DType::float32), 0.1F);
  }
};
// Not for float32, which always uses our own kernels.
INSTANTIATE_TEST_SUITE_P(Types, AttendKernel, testing::Values(DType::bfloat16, DType::float16),
                         type_name);

TEST_P(AttendKernel, AgreesWithTheCpu) {
  for (const std::int64_t channels : {8, 64, 72, 128}) {
    for (const std::int64_t keys : {512, 700, 1024}) {
      for (const std::int64_t queries : {1, 5, 40}) {
        const Tensor q = random({queries, 2, 3, channels}, 1);
        const Tensor kv = random({keys, 2, 2, 3, channels}, 2);
        ASSERT_TRUE(at_once(keys, channels)) << keys << " keys of " << channels;
        EXPECT_LT(relative_error(attend_there(q, kv), on_cpu(q, kv)), tolerance())
            << queries << " queries, " << keys << " keys of " << channels << " channels";
      }
    }
  }
}

TEST_P(AttendKernel, QueriesDoNotDependOnTheirNumber) {
  const std::int64_t queries = size(60, 3000), keys = size(600, 17776);
  for (const std::int64_t channels : {64, 72}) {
    const Tensor q = random({queries, 2, 2, channels}, 1);
    const Tensor kv = random({keys, 2, 2, 2, channels}, 2);
    const Tensor all = attend_there(q, kv);
    for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, 1}, {7, 2}, {13, 40}, {queries - 17, 17}, {0, queries - 1}}) {
      EXPECT_TRUE(
          same_bits(attend_there(q.rows(first, count).clone(), kv), all.rows(first, count).clone()))
          << count << " queries from " << first << " on";
    }
  }
}

TEST_P(AttendKernel, HeadsAndItemsDoNotDependOnTheirNumber) {
  const std::int64_t queries = 20, keys = 530, items = 2, heads = 3, channels = 64;
  const Tensor q = random({queries, items, heads, channels}, 1);
  const Tensor kv = random({keys, items, 2, heads, channels}, 2);
  const Tensor all = attend_there(q, kv);
  // One head of one item out of [row, item, part, head, channel].
  const auto alone = [&](const Tensor& x, std::int64_t parts, std::int64_t item,
                         std::int64_t head) {
    const std::int64_t rows = x.shape(0), bytes = channels * size_of(x.dtype());
    Tensor out = Tensor::empty({rows, 1, parts, 1, channels}, x.dtype());
    for (std::int64_t i = 0; i < rows * parts; ++i) {
      const std::int64_t from = ((i / parts * items + item) * parts + i % parts) * heads + head;
      std::memcpy(static_cast<std::byte*>(out.raw()) + i * bytes,
                  static_cast<const std::byte*>(x.raw()) + from * bytes,
                  static_cast<std::size_t>(bytes));
    }
    return out;
  };
  for (std::int64_t item = 0; item < items; ++item) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const Tensor one = alone(q, 1, item, head).reshape({queries, 1, 1, channels});
      const Tensor expected = alone(all, 1, item, head).reshape({queries, 1, 1, channels});
      EXPECT_TRUE(same_bits(attend_there(one, alone(kv, 2, item, head)), expected))
          << "item " << item << ", head " << head;
    }
  }
}

TEST_P(AttendKernel, SequencesSideBySideHaveTheBitsOfEachAlone) {
  const std::int64_t sequences = 3, tokens = 520, channels = 72;
  const Tensor q = random({sequences * tokens, 2, 2, channels}, 1);
  const Tensor kv = random({sequences * tokens, 2, 2, 2, channels}, 2);
  const Tensor together = attend_there(q, kv, sequences);
  for (std::int64_t i = 0; i < sequences; ++i) {
    const auto part = [&](const Tensor& x) { return x.rows(i * tokens, tokens).clone(); };
    EXPECT_TRUE(same_bits(attend_there(part(q), part(kv)), part(together))) << i;
  }
}

TEST_P(AttendKernel, NoHeadsAndNoQueriesAreNothing) {
  const Tensor kv = random({600, 1, 2, 2, 64}, 1);
  EXPECT_EQ(attend_there(random({0, 1, 2, 64}, 1), kv).shape(), (Shape{0, 1, 2, 64}));
  EXPECT_EQ(attend_there(random({5, 1, 0, 64}, 1), random({600, 1, 2, 0, 64}, 1)).shape(),
            (Shape{5, 1, 0, 64}));
}

TEST_P(AttendKernel, UsesOwnKernelsIfConfigured) {
  const Tensor q = random({50, 1, 2, 64}, 1), kv = random({600, 1, 2, 2, 64}, 2);
  ops::Attention own(there(q), 0.1F);
  own.add(there(kv));
  const Tensor expected = back(own.finish());
  EXPECT_FALSE(same_bits(attend_there(q, kv), expected));  // so the test can tell which kernel ran
  const Numerics by_own{.own_attention = true};
  EXPECT_FALSE(at_once(600, 64, by_own));
  EXPECT_TRUE(same_bits(attend_there(q, kv, 1, by_own), expected));
}

TEST_P(AttendKernel, FewKeysAndOddChannelsGoByOurOwnKernels) {
  EXPECT_FALSE(at_once(511, 64));
  EXPECT_FALSE(at_once(1024, 68));
  EXPECT_FALSE(at_once(1024, 136));
  EXPECT_FALSE(ops::uses_fused_attention(test_device(), DType::float32, 1024, 64, {}));
  EXPECT_FALSE(ops::uses_fused_attention({}, GetParam(), 1024, 64, {}));  // on the CPU
}

}  // namespace
}  // namespace reelmesh::test
