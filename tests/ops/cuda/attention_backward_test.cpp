#include "ops/attention_backward.hpp"

#include "ops/attention_work.hpp"
#include "ops/cuda/ops.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

class AttentionBackwardKernel : public KernelTest {
 protected:
  struct Inputs {
    Tensor q, k, v, d_out;  // [sequence · token, batch, head, channel]
    float scale = 1;
    std::int64_t sequences = 1;
  };
  // keys: their number, unless there are as many as queries.
  static Inputs random(const Shape& shape, std::optional<std::int64_t> keys = {}) {
    const DType dtype = GetParam();
    Shape of_keys = shape;
    of_keys[0] = keys.value_or(shape[0]);
    return {random_tensor(shape, 1, dtype), random_tensor(of_keys, 2, dtype),
            random_tensor(of_keys, 3, dtype), random_tensor(shape, 4, dtype),
            1 / std::sqrt(static_cast<float>(shape[3]))};
  }
  struct Results {
    Tensor out, log_sum_exp, d_q, d_k, d_v;  // on the host
  };
  static Results run(const Inputs& x, Device device) {
    const Tensor q = x.q.on(device), k = x.k.on(device), v = x.v.on(device);
    const ops::AttentionForward forward = ops::attention_forward(q, k, v, x.scale, {}, x.sequences);
    const ops::AttentionGradients gradients =
        ops::attention_backward(q, k, v, forward, x.d_out.on(device), x.scale, {}, x.sequences);
    return {back(forward.out), back(forward.log_sum_exp), back(gradients.q), back(gradients.k),
            back(gradients.v)};
  }
  static void expect_cpu(const Inputs& x) {
    const Results found = run(x, test_device()), right = expected(x);
    EXPECT_LT(relative_error(found.out, right.out), tolerance());
    EXPECT_LT(relative_error(found.log_sum_exp, right.log_sum_exp), 1e-6);
    EXPECT_LT(relative_error(found.d_q, right.d_q), tolerance());
    EXPECT_LT(relative_error(found.d_k, right.d_k), tolerance());
    EXPECT_LT(relative_error(found.d_v, right.d_v), tolerance());
  }
  // The same on the CPU, in float32.
  static Results expected(const Inputs& x) {
    const auto wide = [](const Tensor& t) { return t.to(DType::float32); };
    return run({wide(x.q), wide(x.k), wide(x.v), wide(x.d_out), x.scale, x.sequences}, {});
  }
};
INSTANTIATE_TEST_SUITE_P(Types, AttentionBackwardKernel, all_types, type_name);

TEST_P(AttentionBackwardKernel, AgreesWithTheCpu) {
  for (const std::int64_t channels : {6, 64, 72, 128}) {
    for (const std::int64_t tokens : {std::int64_t{33}, size(100, 1100)}) {
      SCOPED_TRACE(fmt::format("{} channels, {} tokens", channels, tokens));
      expect_cpu(random({tokens, 2, 2, channels}));
    }
  }
}

TEST_P(AttentionBackwardKernel, TakesSequencesAndOtherNumbersOfKeys) {
  Inputs x = random({3 * 50, 1, 2, 72}, 3 * 21);
  x.sequences = 3;
  expect_cpu(x);
  expect_cpu(random({100, 1, 2, 72}, 7));
}

// The fused kernel, where it is there, keeps logarithms of sums, too.
TEST_P(AttentionBackwardKernel, AttendsByTheFusedKernel) {
  Inputs x = random({3 * 520, 2, 2, 8});
  x.sequences = 3;
  expect_cpu(x);
  x = random({520, 2, 3, 72});
  expect_cpu(x);
  const auto forward = [&](const Numerics& numerics) {
    return back(ops::attention_forward(there(x.q), there(x.k), there(x.v), x.scale, numerics).out);
  };
  EXPECT_EQ(same_bits(forward({}), forward({.own_attention = true})),
            !ops::uses_fused_attention(test_device(), GetParam(), 520, 72, {}));
}

TEST_P(AttentionBackwardKernel, OutHasTheBitsOfAttention) {
  const Inputs x = random({100, 1, 2, 64});
  const auto rows = [](const Tensor& t) {
    return ops::Rows{there(t).reshape({t.shape(0), t.shape(1), 1, t.shape(2), t.shape(3)})};
  };
  const auto work = gpu::attention_work(rows(x.q), x.scale, {}, {});
  work->add(rows(x.k), rows(x.v));
  EXPECT_TRUE(same_bits(run(x, test_device()).out, back(work->finish())));
}

TEST_P(AttentionBackwardKernel, SurvivesScoresFarBelowZero) {
  Inputs x = random({70, 1, 1, 16});
  const auto filled = [&](float value) {
    Tensor t = Tensor::empty(x.q.shape(), DType::float32);
    for (float& element : t.span<float>()) element = value;
    return t.to(GetParam());
  };
  x.q = filled(30);
  x.k = filled(-30);
  const Results found = run(x, test_device());
  // All keys have the same weight, so a value gets the mean of the gradients.
  EXPECT_LT(relative_error(found.d_v, expected(x).d_v), std::max(tolerance(), 1e-3));
  for (const Tensor& gradient : {found.d_q, found.d_k}) {
    const Tensor values = gradient.to(DType::float32);
    for (const float value : values.span<float>()) ASSERT_TRUE(std::isfinite(value));
  }
}

// Weights and gradients of scores are rounded to 16 bits as operands of tensor cores. The kernels
// for float32 have other bits.
TEST_P(AttentionBackwardKernel, MultipliesSixteenBitsOnTensorCores) {
  const Inputs x = random({70, 1, 2, 64}, 50);
  const Tensor q = there(x.q), k = there(x.k), v = there(x.v), d_out = there(x.d_out);
  ops::AttentionForward forward = ops::attention_forward(q, k, v, x.scale);
  const ops::AttentionGradients found = ops::attention_backward(q, k, v, forward, d_out, x.scale);
  const auto wide = [](const Tensor& t) { return t.to(DType::float32); };
  forward.out = wide(forward.out);
  const ops::AttentionGradients by_float32 =
      ops::attention_backward(wide(q), wide(k), wide(v), forward, wide(d_out), x.scale);
  for (const auto& [gradient, expected] :
       {std::pair{found.q, by_float32.q}, {found.k, by_float32.k}, {found.v, by_float32.v}}) {
    EXPECT_EQ(same_bits(back(gradient), back(expected.to(GetParam()))),
              GetParam() == DType::float32);
    EXPECT_LT(relative_error(back(gradient), back(expected)), tolerance());
  }
}

// Gradients of scores lie below 1e-6, where float16 has few numbers, or grow from there a thousand
// times from token to token. Those of queries, keys and values are large enough.
TEST_P(AttentionBackwardKernel, KeepsSmallGradients) {
  Inputs x = random({600, 1, 1, 64}, 530);
  const auto scaled = [&](const Tensor& like, unsigned seed, const auto& factor_of_row) {
    Tensor values = random_tensor(like.shape(), seed, DType::float32);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      values.data<float>()[i] *= factor_of_row(i / 64);
    }
    return values.to(GetParam());
  };
  const auto small = [](std::int64_t) { return 0x1p-6F; };
  x.q = scaled(x.q, 1, small);
  x.k = scaled(x.k, 2, small);
  x.v = scaled(x.v, 3, small);
  x.scale = 512;
  x.d_out = scaled(x.d_out, 4, [](std::int64_t) { return 0x1p-7F; });
  expect_cpu(x);
  const auto growing = [](std::int64_t row) { return std::ldexp(0x1p-7F, int(row / 60)); };
  x.d_out = scaled(x.d_out, 4, growing);
  expect_cpu(x);
}

TEST_P(AttentionBackwardKernel, OfNoHeadsIsEmpty) {
  const Results found = run(random({33, 2, 0, 64}), test_device());
  EXPECT_EQ(found.d_q.shape(), (Shape{33, 2, 0, 64}));
  EXPECT_EQ(found.log_sum_exp.shape(), (Shape{0, 33}));
}

TEST_P(AttentionBackwardKernel, RefusesWideHeads) {
  const Tensor x = there(random({5, 1, 1, 136}).q);
  EXPECT_THROW(ops::attention_forward(x, x, x, 1.0F), Error);
}

}  // namespace
}  // namespace reelmesh::test
