// Gradients of attention of CogVideoX-5b's tokens, of one clip, as in a training.
#include "ops/attention_backward.hpp"

#include "ops/cuda/truth/truth.hpp"

namespace reelmesh::test {
namespace {

class AttentionBackwardTruth : public TruthTest<DType> {};
INSTANTIATE_TEST_SUITE_P(Of, AttentionBackwardTruth, testing::ValuesIn(half_types),
                         [](const auto& of) { return std::string(name_of(of.param)); });

// Bounds with u = unit_roundoff(dtype). Scores, their exponentials and all sums are float32.
// Rounded are: each weight or gradient of a score before it is multiplied, and the result. These
// errors are independent, evenly distributed over ±u of their power of two, and so are the signs of
// what is added. So the rms of the sum of errors is at most u/√3 of that of the results, with their
// own rounding √(2/3)·u < u. The largest of all errors is about as many times their rms as the
// largest result is of that of the results.
TEST_P(AttentionBackwardTruth, AgreesWithFloat32) {
  const DType dtype = GetParam();
  const std::int64_t tokens = size(530, 17776), heads = size(2, 48), channels = 64;
  constexpr float scale = 0.125F;
  const Shape shape{tokens, 1, heads, channels};
  // As in AttentionTruth: scores have a standard deviation of 2. Gradients are as small as those of
  // a mean over many elements.
  const Tensor q = repeated_random_tensor(shape, 1, dtype, 2.0F, test_device()),
               k = repeated_random_tensor(shape, 2, dtype, 1.0F, test_device()),
               v = repeated_random_tensor(shape, 3, dtype, 1.0F, test_device()),
               d_out = repeated_random_tensor(shape, 4, dtype, 0x1p-8F, test_device());
  ops::AttentionForward forward = ops::attention_forward(q, k, v, scale);
  const ops::AttentionGradients found = ops::attention_backward(q, k, v, forward, d_out, scale);
  const auto wide = [](const Tensor& x) { return x.to(DType::float32); };
  forward.out = wide(forward.out);
  const ops::AttentionGradients expected =
      ops::attention_backward(wide(q), wide(k), wide(v), forward, wide(d_out), scale);
  const Errors allowed{2 * unit_roundoff(dtype), unit_roundoff(dtype)};
  expect_errors("gradient of queries", errors(found.q, expected.q), allowed);
  expect_errors("gradient of keys", errors(found.k, expected.k), allowed);
  expect_errors("gradient of values", errors(found.v, expected.v), allowed);
}

}  // namespace
}  // namespace reelmesh::test
