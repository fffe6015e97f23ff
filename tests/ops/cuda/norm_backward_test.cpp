#include "ops/norm_backward.hpp"

#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

class NormBackward : public KernelTest {
 protected:
  static std::vector<std::int64_t> widths() { return {24, 37, 1152, size(200, 3072)}; }
  static Tensor random(const Shape& shape, unsigned seed) {
    return random_tensor(shape, seed, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Types, NormBackward, all_types, type_name);

constexpr std::int64_t tokens = 7, batch = 2;
const std::vector<std::int64_t> counts_of_first_tokens{0, 3, tokens};

TEST_P(NormBackward, LayerNormTakesWeightsOfBothTypes) {
  for (const std::int64_t n : widths()) {
    for (const DType type : {GetParam(), DType::float32}) {
      const Tensor x = random({tokens, batch, n}, 1), w = random_tensor({n}, 2, type),
                   d = random(x.shape(), 3);
      Tensor dx = random(x.shape(), 4), z = there(dx);
      ops::layer_norm_backward(there(x), there(w), 1e-5F, {}, there(d), z);
      ops::layer_norm_backward(x, w, 1e-5F, {}, d, dx);
      EXPECT_LT(relative_error(back(z), dx), tolerance()) << n;
    }
  }
}

TEST_P(NormBackward, ModulatedLayerNorm) {
  for (const std::int64_t n : widths()) {
    const Tensor x = random({tokens, batch, n}, 1), w = random({n}, 2), d = random(x.shape(), 3);
    for (const std::int64_t rows : {std::int64_t{1}, batch}) {
      const Tensor table = random({rows, 6 * n}, 4);
      for (const std::int64_t text : counts_of_first_tokens) {
        const ops::FirstTokens first{text, 3};
        Tensor dx = random(x.shape(), 5), z = there(dx);
        ops::layer_norm_backward(there(x), there(w), 1e-5F, {there(table), 0, 1, first}, there(d),
                                 z);
        ops::layer_norm_backward(x, w, 1e-5F, {table, 0, 1, first}, d, dx);
        EXPECT_LT(relative_error(back(z), dx), tolerance()) << n << " after " << text;
      }
    }
  }
}

TEST_P(NormBackward, NormaliseAndRotate) {
  for (const std::int64_t n : {8, 9, 64, 72, 128}) {
    for (const bool rotates : {false, true}) {
      if (rotates && n % 2 != 0) continue;
      for (const bool centred : {false, true}) {
        for (const std::int64_t unrotated : counts_of_first_tokens) {
          const std::int64_t parts = unrotated == 0 ? 1 : 3;
          const Tensor x = random({tokens, batch, parts, 3, n}, 1);
          Tensor d = random({tokens, batch, 1, 3, n}, 2), z = there(d);
          const ops::HeadNorm norm{random_tensor({n}, 3),
                                   centred ? random_tensor({n}, 4) : Tensor{}, 1e-6F};
          const Tensor c = rotates ? random_tensor({tokens - unrotated, n}, 5) : Tensor{},
                       s = rotates ? random_tensor({tokens - unrotated, n}, 6) : Tensor{};
          Tensor before = Tensor::empty(d.shape(), d.dtype()), there_before = there(before);
          ops::normalise_and_rotate_backward(there(x),
                                             {there(norm.weight), there(norm.bias), 1e-6F},
                                             there(c), there(s), unrotated, z, &there_before);
          ops::normalise_and_rotate_backward(x, norm, c, s, unrotated, d, &before);
          EXPECT_LT(relative_error(back(z), d), tolerance())
              << n << rotates << centred << " after " << unrotated;
          EXPECT_LT(relative_error(back(there_before), before), tolerance())
              << n << rotates << centred << " after " << unrotated;
        }
      }
    }
  }
}

TEST_P(NormBackward, NormTogetherAndRotate) {
  using Heads = std::pair<std::int64_t, std::int64_t>;  // how many, channels
  for (const auto& [heads, n] : {Heads{3, 10}, Heads{2, 64}, Heads{size(5, 40), 128}}) {
    const std::int64_t all = heads * n;
    for (const std::int64_t parts : {1, 2}) {
      const Tensor x = random({tokens, batch, parts, 1, all}, 1), w = random_tensor({all}, 3);
      Tensor d = random({tokens, batch, 1, 1, all}, 2), z = there(d);
      const Tensor c = random_tensor({tokens, n}, 5), s = random_tensor({tokens, n}, 6);
      Tensor before = Tensor::empty(d.shape(), d.dtype()), there_before = there(before);
      ops::normalise_and_rotate_backward(there(x), {there(w), {}, 1e-6F}, there(c), there(s), 0, z,
                                         &there_before);
      ops::normalise_and_rotate_backward(x, {w, {}, 1e-6F}, c, s, 0, d, &before);
      EXPECT_LT(relative_error(back(z), d), tolerance()) << heads << " heads of " << n;
      EXPECT_LT(relative_error(back(there_before), before), tolerance());
    }
  }
}

TEST_P(NormBackward, Gated) {
  for (const std::int64_t n : widths()) {
    const Tensor d = random({tokens, batch, n}, 1);
    for (const std::int64_t rows : {std::int64_t{1}, batch}) {
      const Tensor table = random({rows, 6 * n}, 2);
      for (const std::int64_t text : counts_of_first_tokens) {
        const ops::FirstTokens first{text, 3};
        EXPECT_TRUE(same_bits(back(ops::gated(there(d), {there(table), 2, first})),
                              ops::gated(d, {table, 2, first})))
            << n << " after " << text;
      }
    }
  }
}

TEST_P(NormBackward, Gelu) {
  for (const std::int64_t count : {1, 37, 1024}) {
    const Tensor x = random_tensor({3, count}, 1, GetParam(), 6.0F);
    Tensor d = random(x.shape(), 2), z = there(d);
    EXPECT_TRUE(same_bits(back(ops::gelu_tanh(there(x))), ops::gelu_tanh(x))) << count;
    ops::gelu_tanh_backward(there(x), z);
    ops::gelu_tanh_backward(x, d);
    EXPECT_TRUE(same_bits(back(z), d)) << count;
    ops::gelu_backward(there(x), z);
    ops::gelu_backward(x, d);
    EXPECT_TRUE(same_bits(back(z), d)) << count;
  }
}

TEST_P(NormBackward, OfNoElementsDoesNothing) {
  const Tensor none = there(random({0, 2, 8}, 1)), w = there(random_tensor({8}, 2));
  Tensor d = none.clone(), of_heads = there(random({0, 1, 1, 3, 8}, 3));
  ops::layer_norm_backward(none, w, 1e-5F, {}, none, d);
  ops::normalise_and_rotate_backward(of_heads.clone(), {w, w, 1e-6F}, {}, {}, 0, of_heads);
  ops::gelu_tanh_backward(none, d);
  ops::gelu_backward(none, d);
  const Tensor gated = ops::gated(none, {there(random({1, 16}, 4)), 1, {}});
  const Tensor activated = ops::gelu_tanh(none);
  EXPECT_EQ(gated.shape(), none.shape());
  EXPECT_EQ(gated.device(), test_device());
  EXPECT_EQ(activated.shape(), none.shape());
  EXPECT_EQ(activated.device(), test_device());
}

}  // namespace
}  // namespace reelmesh::test
