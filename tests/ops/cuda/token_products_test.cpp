#include "ops/token_products.hpp"

#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

class TokenProducts : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, TokenProducts, all_types, type_name);

struct Size {
  std::int64_t tokens, m, n;
};

TEST_P(TokenProducts, AreThoseOfTheCpu) {
  for (const Size& size :
       {Size{1, 1, 1}, Size{37, 3, 5}, Size{512, 64, 64}, Size{525, 65, 7}, Size{545, 136, 264},
        Size{test::size(70, 17776), 130, test::size(70, 3072)}}) {
    const Tensor a = random_tensor({size.tokens, size.m}, 1, GetParam()),
                 b = random_tensor({size.tokens, size.n}, 2, GetParam());
    const Tensor found = ops::token_products(there(a), there(b));
    EXPECT_EQ(found.device(), test_device());
    EXPECT_EQ(found.dtype(), DType::float32);
    // Products of 16-bit values are exact in float32.
    EXPECT_LT(relative_error(back(found), ops::token_products(a, b)), 1e-5)
        << size.tokens << " tokens, " << size.m << " × " << size.n;
  }
}

// Tensor cores add in another order than the kernel for float32, which adds token by token.
TEST_P(TokenProducts, MultiplySixteenBitsOnTensorCores) {
  const Tensor a = there(random_tensor({600, 72}, 1, GetParam())),
               b = there(random_tensor({600, 40}, 2, GetParam()));
  const Tensor by_float32 = ops::token_products(a.to(DType::float32), b.to(DType::float32));
  EXPECT_EQ(same_bits(back(ops::token_products(a, b)), back(by_float32)),
            GetParam() == DType::float32);
}

TEST_P(TokenProducts, OfNothingAreZeros) {
  for (const Size& size : {Size{0, 3, 5}, Size{4, 0, 5}, Size{4, 3, 0}}) {
    const Tensor found =
        ops::token_products(there(random_tensor({size.tokens, size.m}, 1, GetParam())),
                            there(random_tensor({size.tokens, size.n}, 2, GetParam())));
    EXPECT_EQ(found.device(), test_device());
    EXPECT_TRUE(same_bits(back(found), Tensor::zeros({size.m, size.n}, DType::float32)));
  }
}

TEST_P(TokenProducts, SumsAreThoseOfTheCpu) {
  for (const auto& [tokens, first] :
       {std::pair{1, 0}, {1, 1}, {37, 5}, {525, 0}, {1200, 520}, {1200, 1200}}) {
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{130}, size(7, 3072)}) {
      const Tensor a = random_tensor({tokens, n}, 1, GetParam()),
                   b = random_tensor({tokens, n}, 2, GetParam());
      EXPECT_TRUE(
          same_bits(back(ops::token_sums(there(a), there(b), first)), ops::token_sums(a, b, first)))
          << tokens << " tokens, " << first << " first, " << n << " columns";
      const Tensor found = ops::token_sums(there(a), {}, first);
      EXPECT_EQ(found.device(), test_device());
      EXPECT_TRUE(same_bits(back(found), ops::token_sums(a, {}, first))) << tokens << ", " << n;
    }
  }
}

}  // namespace
}  // namespace reelmesh::test
