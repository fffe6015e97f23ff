// Attention with all keys in one call, for which cuDNN may have a fused kernel.
#include "ops/attention.hpp"
#include "support/test_device.hpp"

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
