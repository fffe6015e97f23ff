#include "ops/attention_backward.hpp"

#include <gtest/gtest.h>

#include "ops/amx.hpp"
#include "ops/attention.hpp"
#include "ops/products.hpp"
#include "support/random_tensor.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;

struct Inputs {
  Tensor q, k, v, d_out;  // [sequence · token, batch, head, channel]
  float scale = 1;
  std::int64_t sequences = 1;
};

// keys: their number, unless there are as many as queries.
Inputs random_inputs(const Shape& shape, DType dtype = DType::float32,
                     std::optional<std::int64_t> keys = {}) {
  Shape of_keys = shape;
  of_keys[0] = keys.value_or(shape[0]);
  return {random_tensor(shape, 1, dtype), random_tensor(of_keys, 2, dtype),
          random_tensor(of_keys, 3, dtype), random_tensor(shape, 4, dtype),
          1 / std::sqrt(static_cast<float>(shape[3]))};
}

struct Results {
  AttentionForward forward;
  AttentionGradients gradients;
};

Results run(const Inputs& x) {
  const AttentionForward forward = attention_forward(x.q, x.k, x.v, x.scale, {}, x.sequences);
  return {forward, attention_backward(x.q, x.k, x.v, forward, x.d_out, x.scale, {}, x.sequences)};
}

// One batch item and head of a tensor, in float64: [token, channel].
using Matrix = std::vector<std::vector<double>>;
Matrix head_of(const Tensor& tensor, std::int64_t item, std::int64_t head) {
  const Tensor x = tensor.to(DType::float32);
  Matrix out;
  for (std::int64_t t = 0; t < x.shape(0); ++t) {
    const float* row = x.data<float>() + ((t * x.shape(1) + item) * x.shape(2) + head) * x.shape(3);
    out.emplace_back(row, row + x.shape(3));
  }
  return out;
}

double dot(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (std::size_t c = 0; c < x.size(); ++c) sum += x[c] * y[c];
  return sum;
}

// What attention of one head is by definition.
struct Exact {
  Matrix out, d_q, d_k, d_v;
  std::vector<double> log_sum_exp;  // to base 2
  double loss = 0;                  // Σ out·d_out
};

Exact exact(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& d_out, double scale) {
  const std::size_t queries = q.size(), keys = k.size(), channels = q[0].size();
  const Matrix of_queries(queries, std::vector<double>(channels, 0.0));
  const Matrix of_keys(keys, std::vector<double>(channels, 0.0));
  Exact e{of_queries, of_queries, of_keys, of_keys, {}, 0};
  std::vector<double> weights(keys), d_weights(keys);
  for (std::size_t i = 0; i < queries; ++i) {
    for (std::size_t j = 0; j < keys; ++j) weights[j] = scale * dot(q[i], k[j]);
    const double largest = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    e.log_sum_exp.push_back((largest + std::log(sum)) / std::log(2.0));
    double mean = 0;  // of the gradients of the weights
    for (std::size_t j = 0; j < keys; ++j) {
      weights[j] /= sum;
      d_weights[j] = dot(d_out[i], v[j]);
      mean += weights[j] * d_weights[j];
      for (std::size_t c = 0; c < channels; ++c) {
        e.out[i][c] += weights[j] * v[j][c];
        e.d_v[j][c] += weights[j] * d_out[i][c];
      }
    }
    for (std::size_t j = 0; j < keys; ++j) {
      const double d_score = weights[j] * (d_weights[j] - mean) * scale;
      for (std::size_t c = 0; c < channels; ++c) {
        e.d_q[i][c] += d_score * k[j][c];
        e.d_k[j][c] += d_score * q[i][c];
      }
    }
    e.loss += dot(e.out[i], d_out[i]);
  }
  return e;
}

// max |difference| / max |expected|, over the heads of all batch items.
struct Errors {
  double out, d_q, d_k, d_v, log_sum_exp;
};
Errors errors_of(const Inputs& x, const Results& results) {
  std::array<double, 5> difference{}, largest{};
  const auto compare = [&](std::size_t which, double found, double expected) {
    difference.at(which) = std::isfinite(found)
                               ? std::max(difference.at(which), std::abs(found - expected))
                               : INFINITY;
    largest.at(which) = std::max(largest.at(which), std::abs(expected));
  };
  for (std::int64_t item = 0; item < x.q.shape(1); ++item) {
    for (std::int64_t head = 0; head < x.q.shape(2); ++head) {
      const Exact e = exact(head_of(x.q, item, head), head_of(x.k, item, head),
                            head_of(x.v, item, head), head_of(x.d_out, item, head), x.scale);
      const auto compare_head = [&](std::size_t which, const Tensor& found,
                                    const Matrix& expected) {
        const Matrix values = head_of(found, item, head);
        for (std::size_t t = 0; t < values.size(); ++t) {
          for (std::size_t c = 0; c < values[t].size(); ++c) {
            compare(which, values[t][c], expected[t][c]);
          }
        }
      };
      compare_head(0, results.forward.out, e.out);
      compare_head(1, results.gradients.q, e.d_q);
      compare_head(2, results.gradients.k, e.d_k);
      compare_head(3, results.gradients.v, e.d_v);
      const Tensor logarithms = results.forward.log_sum_exp.rows(item * x.q.shape(2) + head, 1);
      for (std::size_t t = 0; t < e.log_sum_exp.size(); ++t) {
        compare(4, logarithms.data<float>()[t], e.log_sum_exp[t]);
      }
    }
  }
  const auto error = [&](std::size_t which) { return difference.at(which) / largest.at(which); };
  return {error(0), error(1), error(2), error(3), error(4)};
}

void expect_small(const Errors& errors, double limit) {
  EXPECT_LT(errors.out, limit);
  EXPECT_LT(errors.d_q, limit);
  EXPECT_LT(errors.d_k, limit);
  EXPECT_LT(errors.d_v, limit);
}

const std::vector<Shape> sizes{{1, 1, 1, 8},    {37, 2, 3, 64},  {128, 1, 1, 64},
                               {600, 2, 1, 20}, {512, 1, 1, 64}, {1100, 1, 1, 48}};

TEST(AttentionBackward, TakesAnyNumberOfKeys) {
  for (const std::int64_t keys : {2, 7, 300, 600}) {  // as many as a text has, more than a block
    SCOPED_TRACE(fmt::format("{} keys", keys));
    const Inputs x = random_inputs({150, 1, 3, 8}, DType::float32, keys);
    expect_small(errors_of(x, run(x)), 2e-5);
  }
}

TEST(AttentionBackward, EqualsTheGradientsOfAPlainSoftmax) {
  for (const Shape& size : sizes) {
    SCOPED_TRACE(to_string(size));
    const Inputs x = random_inputs(size);
    const Errors errors = errors_of(x, run(x));
    // One token has the weight 1 whatever its query and key are: gradients of 0.
    if (size[0] > 1) expect_small(errors, 1e-5);
    EXPECT_LT(errors.log_sum_exp, 1e-6);
  }
}

TEST(AttentionBackward, OfOneTokenPassesTheGradientToItsValue) {
  const Inputs x = random_inputs({1, 2, 3, 8});
  const Results results = run(x);
  EXPECT_LT(relative_error(results.gradients.v, x.d_out), 1e-6);
  for (const Tensor& zero : {results.gradients.q, results.gradients.k}) {
    for (const float value : zero.span<float>()) EXPECT_NEAR(value, 0, 1e-5);
  }
}

// 16-bit tensors against float64 of the same values.
TEST(AttentionBackward, Of16BitTypesIsAccurateToTheirPrecision) {
  for (const Products products : {Products::automatic, Products::float32, Products::bfloat16}) {
    if (products == Products::bfloat16 && !has_bfloat16_products()) continue;
    choose_products(products);
    for (const Shape& size : {Shape{37, 2, 3, 64}, Shape{600, 1, 2, 64}, Shape{1100, 1, 1, 20}}) {
      SCOPED_TRACE(to_string(size));
      const Inputs x = random_inputs(size, DType::bfloat16);
      expect_small(errors_of(x, run(x)), 1.5e-2);
    }
  }
  choose_products(Products::automatic);
  const Inputs x = random_inputs({600, 1, 2, 64}, DType::float16);
  expect_small(errors_of(x, run(x)), 2e-3);
}

// The forward pass by AMX's kernels.
TEST(AttentionBackward, OfProductsByAmxIsAccurateToTheirPrecision) {
  if (!has_bfloat16_products())
    GTEST_SKIP() << "oneDNN has no products in bfloat16 without AVX-512";
  amx::use_plain_kernels(true);
  const Inputs x = random_inputs({600, 2, 1, 64}, DType::bfloat16);
  const Errors errors = errors_of(x, run(x));
  amx::use_plain_kernels(false);
  expect_small(errors, 1.5e-2);
  EXPECT_LT(errors.log_sum_exp, 1e-6);
}

TEST(AttentionBackward, AgreesWithFiniteDifferences) {
  const Inputs x = random_inputs({37, 1, 1, 8});
  const AttentionGradients gradients = run(x).gradients;
  std::array<Matrix, 3> arguments{head_of(x.q, 0, 0), head_of(x.k, 0, 0), head_of(x.v, 0, 0)};
  const Matrix d_out = head_of(x.d_out, 0, 0);
  const auto loss = [&] {
    return exact(arguments[0], arguments[1], arguments[2], d_out, x.scale).loss;
  };
  const std::array<Matrix, 3> found{head_of(gradients.q, 0, 0), head_of(gradients.k, 0, 0),
                                    head_of(gradients.v, 0, 0)};
  const double step = 1e-4;
  for (std::size_t which = 0; which < 3; ++which) {
    for (const std::size_t token : {0, 17, 36}) {
      for (const std::size_t channel : {0, 7}) {
        double& value = arguments.at(which)[token][channel];
        const double before = value;
        value = before + step;
        const double more = loss();
        value = before - step;
        const double less = loss();
        value = before;
        EXPECT_NEAR(found.at(which)[token][channel], (more - less) / (2 * step), 1e-5)
            << "argument " << which << ", token " << token << ", channel " << channel;
      }
    }
  }
}

TEST(AttentionBackward, SurvivesLargeScores) {
  Inputs x = random_inputs({600, 1, 1, 16});
  x.q = random_tensor(x.q.shape(), 7, DType::float32, 10.0F);
  x.k = random_tensor(x.k.shape(), 8, DType::float32, 10.0F);
  x.scale = 1;
  expect_small(errors_of(x, run(x)), 1e-3);
  // All scores far below 0: rows of padding have a score of 0 then.
  for (float& value : x.q.span<float>()) value = 30;
  for (float& value : x.k.span<float>()) value = -30 - value / 1000;
  const AttentionGradients gradients = run(x).gradients;
  for (const Tensor& gradient : {gradients.q, gradients.k, gradients.v}) {
    for (const float value : gradient.span<float>()) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(AttentionBackward, OutHasTheBitsOfAttend) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    for (const std::int64_t tokens : {37, 600, 1100}) {
      const Inputs x = random_inputs({tokens, 2, 3, 16}, dtype);
      Tensor keys_values = Tensor::empty({tokens, 2, 2, 3, 16}, dtype);
      const std::int64_t part = 3 * 16;
      for (std::int64_t i = 0; i < tokens * 2; ++i) {
        keys_values.reshape({tokens * 2 * 2, part})
            .rows(2 * i, 1)
            .copy_from(x.k.reshape({tokens * 2, part}).rows(i, 1));
        keys_values.reshape({tokens * 2 * 2, part})
            .rows(2 * i + 1, 1)
            .copy_from(x.v.reshape({tokens * 2, part}).rows(i, 1));
      }
      EXPECT_TRUE(same_bits(attention_forward(x.q, x.k, x.v, x.scale).out,
                            attend(x.q, keys_values, x.scale)));
    }
  }
}

TEST(AttentionBackward, OfNoHeadsIsEmpty) {
  for (const Shape& shape : {Shape{37, 2, 0, 64}, Shape{0, 1, 3, 64}}) {
    const Results results = run(random_inputs(shape));
    for (const Tensor& x :
         {results.forward.out, results.gradients.q, results.gradients.k, results.gradients.v}) {
      EXPECT_EQ(x.shape(), shape);
    }
    EXPECT_EQ(results.forward.log_sum_exp.shape(), (Shape{shape[1] * shape[2], shape[0]}));
  }
}

TEST(AttentionBackward, OfShapesTakesWhatItsResultsTake) {
  for (const bool on_gpu : {false, true}) {
    Ledger ledger({DType::bfloat16, DType::bfloat16, on_gpu});
    const DryRun dry(ledger);
    const Tensor x = Tensor::empty({1100, 1, 3, 64}, DType::bfloat16, Device::shapes(on_gpu));
    const AttentionForward forward = attention_forward(x, x, x, 0.125F);
    EXPECT_EQ(forward.out.shape(), x.shape());
    EXPECT_EQ(forward.log_sum_exp.shape(), (Shape{3, 1100}));
    const std::int64_t before = ledger.present();
    const AttentionGradients gradients = attention_backward(x, x, x, forward, x, 0.125F);
    EXPECT_GE(ledger.present() - before, 3 * x.bytes());
    EXPECT_EQ(gradients.q.shape(), x.shape());
    EXPECT_EQ(ledger.counted().flops, (4 + 10) * std::int64_t{1100} * 1100 * 3 * 64);
    if (!on_gpu) {
      // Packed twice each: q and the gradient of out, in tiles; sums of the gradient of q.
      EXPECT_GE(ledger.scratch(), 4 * 1100 * 64 * 2 + 1100 * 64 * 4);
    }
  }
}

TEST(AttentionBackward, RefusesTensorsOfUnlikeShapes) {
  const Inputs x = random_inputs({5, 1, 2, 8});
  const AttentionForward forward = attention_forward(x.q, x.k, x.v, x.scale);
  EXPECT_THROW(attention_forward(x.q, x.k.rows(0, 4), x.v, x.scale), Error);
  EXPECT_THROW(attention_backward(x.q, x.k, x.v, forward, x.d_out.rows(0, 4), x.scale), Error);
  EXPECT_THROW(attention_backward(x.q, x.k, x.v, forward, x.d_out.to(DType::bfloat16), x.scale),
               Error);
}

}  // namespace
}  // namespace reelmesh::ops
