// Gradients compared with finite differences, in float64, of what the ops compute by definition.
#include "ops/norm_backward.hpp"

#include <gtest/gtest.h>

#include <numbers>

#include "ops/linear.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;

using Row = std::vector<double>;

Row row_of(const Tensor& tensor, std::int64_t row, std::int64_t n) {
  const Tensor x = tensor.to(DType::float32);
  const float* first = x.data<float>() + row * n;
  return {first, first + n};
}

// The derivative of Σ d·f(x) with respect to x, by central differences. f: row → row.
template <class F>
Row gradient(const F& f, Row x, const Row& d) {
  const double step = 1e-4;
  const auto loss = [&] {
    const Row y = f(x);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += d[i] * y[i];
    return sum;
  };
  Row result;
  for (double& value : x) {
    const double before = value;
    value = before + step;
    const double more = loss();
    value = before - step;
    const double less = loss();
    value = before;
    result.push_back((more - less) / (2 * step));
  }
  return result;
}

// (x − mean)/√(var + eps) or, not centred, x/√(mean(x²) + eps), times the weight. The bias has no
// influence on gradients.
Row normalised(const Row& x, const Row& weight, bool centred, double eps) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, squares = 0;
  for (const double value : x) mean += centred ? value / n : 0;
  for (const double value : x) squares += (value - mean) * (value - mean) / n;
  Row y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    y.push_back((x[i] - mean) / std::sqrt(squares + eps) * weight[i]);
  }
  return y;
}

// For results rounded once from float32; relative to the largest value.
double tolerance(DType dtype) {
  return dtype == DType::float32 ? 1e-5 : dtype == DType::float16 ? 2e-3 : 1e-2;
}
const std::vector<DType> norm_types{DType::float32, DType::bfloat16, DType::float16};

constexpr std::int64_t tokens = 5, batch = 2;

// Writes a row of a float32 tensor.
void set_row(Tensor& into, std::int64_t row, const Row& values) {
  std::ranges::transform(values,
                         into.data<float>() + row * static_cast<std::int64_t>(values.size()),
                         [](double value) { return static_cast<float>(value); });
}

// The index of the modulation chunk of a row, in a table of these rows.
std::int64_t chunk_row(const Tensor& table, const FirstTokens& first, int chunk, std::int64_t row,
                       std::int64_t n) {
  const int later = row / batch < first.count ? first.chunks_later : 0;
  return row % batch % table.shape(0) * (table.shape(1) / n) + chunk + later;
}

void check_layer_norm(DType dtype, std::int64_t n, const Modulation& modulation) {
  const Tensor x = random_tensor({tokens, batch, n}, 1, dtype), w = random_tensor({n}, 2, dtype);
  const Tensor d = random_tensor(x.shape(), 3, dtype), before = random_tensor(x.shape(), 4, dtype);
  Tensor dx = before.clone();
  layer_norm_backward(x, w, 1e-5F, modulation, d, dx);
  Tensor expected = Tensor::empty(x.shape(), DType::float32);
  for (std::int64_t row = 0; row < tokens * batch; ++row) {
    Row weight = row_of(w, 0, n);
    if (!modulation.table.empty()) {
      const Row scale =
          row_of(modulation.table,
                 chunk_row(modulation.table, modulation.first, modulation.scale, row, n), n);
      for (std::size_t i = 0; i < weight.size(); ++i) weight[i] *= 1 + scale[i];
    }
    Row sum = gradient([&](const Row& of_x) { return normalised(of_x, weight, true, 1e-5F); },
                       row_of(x, row, n), row_of(d, row, n));
    const Row added_to = row_of(before, row, n);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += added_to[i];
    set_row(expected, row, sum);
  }
  EXPECT_LT(relative_error(dx, expected), tolerance(dtype))
      << name_of(dtype) << ", " << n << " channels, table " << to_string(modulation.table.shape())
      << ", " << modulation.first.count << " first tokens";
}

TEST(LayerNormBackward, IsTheDerivative) {
  for (const DType dtype : norm_types) {
    for (const std::int64_t n : {24, 37, 200}) check_layer_norm(dtype, n, {});
  }
  check_layer_norm(DType::float32, 1920, {});
}

TEST(LayerNormBackward, OfModulatedNormsIsTheDerivative) {
  for (const DType dtype : norm_types) {
    for (const std::int64_t n : {24, 37}) {
      for (const std::int64_t rows : {std::int64_t{1}, batch}) {
        const Tensor table = random_tensor({rows, 6 * n}, 5, dtype);
        check_layer_norm(dtype, n, {table, 0, 1, {}});
        for (const std::int64_t text : {std::int64_t{0}, std::int64_t{3}, tokens}) {
          check_layer_norm(dtype, n, {table, 0, 1, {text, 3}});
        }
      }
    }
  }
}

TEST(LayerNormBackward, RefusesOtherShapes) {
  const Tensor x = random_tensor({2, 1, 8}, 1), w = random_tensor({8}, 2);
  Tensor dx = Tensor::zeros({2, 1, 8}, DType::float32), short_dx = dx.rows(0, 1);
  EXPECT_THROW(layer_norm_backward(x, w, 1e-5F, {}, x.rows(0, 1), dx), Error);
  EXPECT_THROW(layer_norm_backward(x, w, 1e-5F, {}, x, short_dx), Error);
  EXPECT_THROW(layer_norm_backward(x, w, 1e-5F, {}, x.to(DType::bfloat16), dx), Error);
}

struct Heads {
  std::int64_t parts = 1, heads = 3, channels = 8;
  bool centred = true, rotates = true;
  std::int64_t unrotated = 0;
  std::int64_t repeats = 1;  ///< how often a head uses the tables, of so much fewer channels
};

void check_heads(DType dtype, const Heads& c) {
  const std::int64_t n = c.channels, angles = n / c.repeats, rotated = tokens - c.unrotated;
  const Tensor x = random_tensor({tokens, batch, c.parts, c.heads, n}, 1, dtype);
  const Tensor d = random_tensor({tokens, batch, 1, c.heads, n}, 2, dtype);
  const HeadNorm norm{random_tensor({n}, 3), c.centred ? random_tensor({n}, 4) : Tensor{}, 1e-6F};
  // Not of one angle, so that a gradient with cosines or sines of the wrong channel differs.
  const Tensor cosines = c.rotates ? random_tensor({rotated, angles}, 5) : Tensor{};
  const Tensor sines = c.rotates ? random_tensor({rotated, angles}, 6) : Tensor{};
  Tensor found = d.clone();
  normalise_and_rotate_backward(x, norm, cosines, sines, c.unrotated, found);
  Tensor expected = Tensor::empty(d.shape(), DType::float32);
  for (std::int64_t row = 0; row < tokens * batch * c.heads; ++row) {
    const std::int64_t item = row / c.heads, head = row % c.heads, token = item / batch;
    const Row weight = row_of(norm.weight, 0, n);
    const auto of_row = [&](const Row& value) {
      Row y = normalised(value, weight, c.centred, 1e-6F);
      if (!c.rotates || token < c.unrotated) return y;
      const Row cos = row_of(cosines, token - c.unrotated, angles),
                sin = row_of(sines, token - c.unrotated, angles);
      for (std::size_t i = 0; i < y.size(); i += 2) {
        const double even = y[i], odd = y[i + 1];
        const std::size_t at = i % cos.size();
        y[i] = even * cos[at] - odd * sin[at];
        y[i + 1] = odd * cos[at + 1] + even * sin[at + 1];
      }
      return y;
    };
    set_row(expected, row,
            gradient(of_row, row_of(x, item * c.parts * c.heads + head, n), row_of(d, row, n)));
  }
  EXPECT_LT(relative_error(found, expected), tolerance(dtype))
      << name_of(dtype) << ", " << c.parts << " parts of " << c.heads << " heads of " << n
      << " channels, centred " << c.centred << ", rotates " << c.rotates << " after " << c.unrotated
      << ", tables repeated " << c.repeats;
}

TEST(NormaliseAndRotateBackward, IsTheDerivative) {
  for (const DType dtype : norm_types) {
    for (const bool centred : {true, false}) {
      for (const std::int64_t n : {8, 64, 72}) {
        for (const std::int64_t unrotated : {std::int64_t{0}, std::int64_t{2}, tokens}) {
          check_heads(dtype, {.channels = n, .centred = centred, .unrotated = unrotated});
        }
      }
      for (const std::int64_t n : {9, 64}) {
        check_heads(dtype, {.channels = n, .centred = centred, .rotates = false});
      }
      check_heads(dtype, {.parts = 3, .heads = 2, .centred = centred, .unrotated = 1});
      check_heads(dtype, {.heads = 1, .channels = 16, .centred = centred});
      check_heads(dtype,
                  {.parts = 2, .heads = 1, .channels = 60, .centred = centred, .repeats = 3});
    }
  }
}

TEST(NormaliseAndRotateBackward, RefusesOtherShapes) {
  const Tensor x = random_tensor({4, 1, 2, 3, 8}, 1);
  const HeadNorm norm{random_tensor({8}, 2), random_tensor({8}, 3), 1e-6F};
  Tensor d = random_tensor({4, 1, 2, 3, 8}, 4);  // of both parts
  EXPECT_THROW(normalise_and_rotate_backward(x, norm, {}, {}, 0, d), Error);
  Tensor of_one = random_tensor({4, 1, 1, 3, 8}, 5);
  const Tensor table = random_tensor({4, 8}, 6);
  EXPECT_THROW(normalise_and_rotate_backward(x, norm, table, table, 1, of_one), Error);
  const Tensor uneven = random_tensor({4, 6}, 6);
  EXPECT_THROW(normalise_and_rotate_backward(x, norm, uneven, uneven, 0, of_one), Error);
  const Tensor odd = random_tensor({4, 1, 1, 3, 7}, 7), of_odd = random_tensor({4, 7}, 8);
  const Tensor weight = random_tensor({7}, 9);
  Tensor d_odd = random_tensor(odd.shape(), 10);
  EXPECT_THROW(normalise_and_rotate_backward(odd, {weight, {}}, of_odd, of_odd, 0, d_odd), Error);
}

// The change of x by add_gated() is linear in y, with the same factors.
TEST(Gated, MultipliesAsAddGatedDoes) {
  for (const DType dtype : norm_types) {
    for (const std::int64_t n : {24, 37}) {
      const Tensor d = random_tensor({tokens, batch, n}, 1, dtype);
      for (const std::int64_t rows : {std::int64_t{1}, batch}) {
        const Tensor table = random_tensor({rows, 6 * n}, 2, dtype);
        for (const std::int64_t text : {std::int64_t{0}, std::int64_t{3}, tokens}) {
          const FirstTokens first{text, 3};
          const Tensor found = gated(d, {table, 2, first});
          Tensor added = Tensor::zeros(d.shape(), dtype);
          add_gated(added, d, table, 2, first);
          EXPECT_TRUE(same_bits(found, added)) << name_of(dtype) << ", " << n << " after " << text;
          Tensor expected = Tensor::empty(d.shape(), DType::float32);
          for (std::int64_t row = 0; row < tokens * batch; ++row) {
            Row product = row_of(d, row, n);
            const Row gate = row_of(table, chunk_row(table, first, 2, row, n), n);
            for (std::size_t i = 0; i < product.size(); ++i) product[i] *= gate[i];
            set_row(expected, row, product);
          }
          EXPECT_TRUE(same_bits(found, expected.to(dtype)))
              << name_of(dtype) << ", " << n << " after " << text;
        }
      }
    }
  }
}

double gelu_by_tanh(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * std::pow(x, 3))));
}
double gelu_by_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }

// Over several pieces of a tensor, with a tail; values up to 20 and beyond, where tanh is 1.
Tensor gelu_arguments(DType dtype) { return random_tensor({3, 2731}, 1, dtype, 6.0F); }

TEST(GeluTanh, HasTheValuesOfItsDefinition) {
  for (const DType dtype : norm_types) {
    const Tensor x = gelu_arguments(dtype), y = gelu_tanh(x);
    ASSERT_EQ(y.dtype(), dtype);
    const Tensor wide = x.to(DType::float32), found = y.to(DType::float32);
    const double precision = dtype == DType::float32 ? 1e-6 : tolerance(dtype);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double expected = gelu_by_tanh(wide.data<float>()[i]);
      ASSERT_NEAR(found.data<float>()[i], expected, precision * std::max(1.0, std::abs(expected)))
          << name_of(dtype) << " of " << wide.data<float>()[i];
    }
  }
}

TEST(GeluTanh, HasTheBitsOfAProductsActivation) {
  const std::int64_t n = 64;
  Tensor identity = Tensor::zeros({n, n}, DType::float32);
  for (std::int64_t i = 0; i < n; ++i) identity.data<float>()[i * n + i] = 1;
  const Linear layer(identity);
  const Tensor x = random_tensor({70, n}, 1, DType::float32, 3.0F);
  EXPECT_TRUE(same_bits(gelu_tanh(layer(x)), layer(x, Activation::gelu_tanh)));
}

void expect_derivative(void (*backward)(const Tensor&, Tensor&), double (*function)(double)) {
  for (const DType dtype : norm_types) {
    const Tensor x = gelu_arguments(dtype), d = random_tensor(x.shape(), 2, dtype);
    Tensor found = d.clone();
    backward(x, found);
    Tensor expected = Tensor::empty(x.shape(), DType::float32);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      set_row(expected, i,
              gradient([&](const Row& value) { return Row{function(value[0])}; }, row_of(x, i, 1),
                       row_of(d, i, 1)));
    }
    EXPECT_LT(relative_error(found, expected), tolerance(dtype)) << name_of(dtype);
  }
  Tensor d = random_tensor({3}, 1);
  EXPECT_THROW(backward(random_tensor({4}, 2), d), Error);
}

TEST(GeluBackward, IsTheDerivative) {
  expect_derivative(gelu_tanh_backward, gelu_by_tanh);
  expect_derivative(gelu_backward, gelu_by_erf);
}

TEST(NormBackward, OfNoElementsDoesNothing) {
  const Tensor none = Tensor::empty({0, 2, 8}, DType::float32), w = random_tensor({8}, 1);
  Tensor d = none.clone(), of_heads = Tensor::empty({0, 1, 1, 3, 8}, DType::float32);
  layer_norm_backward(none, w, 1e-5F, {}, none, d);
  normalise_and_rotate_backward(of_heads.clone(), {w, w, 1e-6F}, {}, {}, 0, of_heads);
  gelu_tanh_backward(none, d);
  gelu_backward(none, d);
  EXPECT_EQ(gated(none, {random_tensor({1, 16}, 2), 1, {}}).shape(), none.shape());
  EXPECT_EQ(gelu_tanh(none).shape(), none.shape());
}

// What the norm of the heads gives has the gradient that, without a rotation, leads to the same.
TEST(NormaliseAndRotateBackward, GivesTheGradientBeforeTheRotation) {
  constexpr std::int64_t n = 16, unrotated = 2;
  const HeadNorm norm{random_tensor({n}, 3), random_tensor({n}, 4), 1e-6F};
  const Tensor c = random_tensor({tokens - unrotated, n}, 5),
               s = random_tensor({tokens - unrotated, n}, 6);
  for (const DType dtype : norm_types) {
    const Tensor x = random_tensor({tokens, batch, 1, 3, n}, 1, dtype);
    const Tensor d = random_tensor(x.shape(), 2, dtype);
    Tensor whole = d.clone(), before = Tensor::empty(d.shape(), dtype);
    normalise_and_rotate_backward(x, norm, c, s, unrotated, whole, &before);
    EXPECT_TRUE(same_bits(before.rows(0, unrotated).clone(), d.rows(0, unrotated).clone()));
    EXPECT_GT(relative_error(before, d), 0.1);
    Tensor found = before.clone();
    normalise_and_rotate_backward(x, norm, {}, {}, 0, found);
    EXPECT_LT(relative_error(found, whole.to(DType::float32)), tolerance(dtype)) << name_of(dtype);
  }
}

}  // namespace
}  // namespace reelmesh::ops
