#include "tensor/convert.hpp"

#include "support/test_device.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::test {
namespace {

class Convert : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, Convert, all_types, type_name);

TEST_P(Convert, RoundsAsTheHostDoes) {
  for (const DType into : {DType::float32, DType::bfloat16, DType::float16}) {
    for (const std::int64_t n : {64, 61}) {
      const Tensor x = random_tensor({n}, 1, GetParam()), expected = x.to(into);
      const Tensor source = there(x);
      Tensor y = Tensor::zeros({n}, into, test_device());
      cuda::convert(test_device(), source.address_on(test_device()), GetParam(),
                    y.address_on(test_device()), into, n);
      EXPECT_TRUE(same_bits(back(y), expected)) << name_of(into) << n;
    }
  }
}

}  // namespace
}  // namespace reelmesh::test
