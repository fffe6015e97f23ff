// Matrix products of CogVideoX's layers: 2 · 17,776 = 35,552 rows.
#include "ops/linear.hpp"

#include "ops/cuda/truth/truth.hpp"

namespace reelmesh::test {
namespace {

using ops::Activation;
using ops::Linear;

struct Product {
  DType dtype;
  std::int64_t in, out;
  Activation activation;
};

std::vector<Product> products() {
  std::vector<Product> all;
  for (const DType dtype : half_types) {
    all.push_back({dtype, size(96, 3072), size(288, 9216), Activation::none});        // 5b: q, k, v
    all.push_back({dtype, size(96, 3072), size(384, 12288), Activation::gelu_tanh});  // 5b: up
    all.push_back({dtype, size(384, 12288), size(96, 3072), Activation::none});       // 5b: down
    all.push_back({dtype, size(64, 1920), size(256, 7680), Activation::gelu_tanh});   // 2b: up
  }
  return all;
}

class LinearTruth : public TruthTest<Product> {
 protected:
  static std::int64_t rows() { return size(300, 35552); }

  // Sums have a standard deviation of 1, like the bias.
  void SetUp() override {
    TruthTest::SetUp();
    if (IsSkipped()) return;
    const auto& [dtype, in, out, activation] = GetParam();
    const float scale = 1.0F / std::sqrt(static_cast<float>(in));
    x = repeated_random_tensor({rows(), in}, 1, dtype, 1.0F, test_device());
    w = repeated_random_tensor({out, in}, 2, dtype, scale, test_device());
    b = repeated_random_tensor({out}, 3, dtype, 1.0F, test_device());
  }
  // An output in float64.
  double exact(std::int64_t row, std::int64_t column) const {
    const auto numbers = [](const Tensor& some) { return back(some).to(DType::float32); };
    const Tensor left = numbers(x.rows(row, 1)), right = numbers(w.rows(column, 1));
    double sum = numbers(b.rows(column, 1)).data<float>()[0];
    for (std::int64_t i = 0; i < GetParam().in; ++i) {
      sum += double(left.data<float>()[i]) * right.data<float>()[i];
    }
    if (GetParam().activation == Activation::none) return sum;
    const double inner = std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum);
    return sum * 0.5 * (1 + std::tanh(inner));
  }

  Tensor x, w, b;
};
INSTANTIATE_TEST_SUITE_P(Of, LinearTruth, testing::ValuesIn(products()), [](const auto& of) {
  return fmt::format("{}_{}_to_{}", name_of(of.param.dtype), of.param.in, of.param.out);
});

TEST_P(LinearTruth, AgreesWithFloat32) {
  const auto wide = [](const Tensor& some) { return some.to(DType::float32); };
  const Activation activation = GetParam().activation;
  const Tensor reference = Linear(wide(w), wide(b))(wide(x), activation);
  const std::int64_t out = GetParam().out;
  for (const std::int64_t row : {std::int64_t{0}, rows() / 2 + 1, rows() - 1}) {
    for (const std::int64_t column : {std::int64_t{0}, std::int64_t{130}, out - 1}) {
      if (column >= out) continue;
      const Tensor found = back(reference.reshape({rows() * out}).rows(row * out + column, 1));
      EXPECT_NEAR(found.data<float>()[0], exact(row, column), 4 * float32_tolerance)  // max is ≥ 4
          << "row " << row << ", column " << column;
    }
  }
  // With u = unit_roundoff: a sum in float32 is rounded once, so |error| ≤ u·|result|, and relative
  // to the largest result at most u. Rounding errors are distributed evenly over ±u of the power of
  // two, so the rms is at most u/√3 of that of the results. Tensor cores may cut bits of partial
  // sums off, and cuBLASLt's GELU may compute tanh with 11 bits, an error of at most 2⁻¹²·|x|; the
  // rest of the bounds is for both.
  const double u = unit_roundoff(GetParam().dtype);
  expect_errors("product", errors(Linear(w, b)(x, activation), reference), {2 * u, u});
}

TEST_P(LinearTruth, RowsDoNotDependOnTheNumberOfRows) {
  const Linear linear(w, b);
  const Activation activation = GetParam().activation;
  const Tensor all = linear(x, activation);
  const std::int64_t n = rows();
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 1},
                                     {n - 1, 1},
                                     {5, size(45, 1125)},
                                     {n / 2 + 3, size(45, 1125)},
                                     {n - n / 8, n / 8},
                                     {n / 8, n / 8},
                                     {n / 2, n / 2}}) {
    EXPECT_TRUE(
        same_bits(back(linear(x.rows(first, count), activation)), back(all.rows(first, count))))
        << count << " rows from " << first << " on";
  }
}

}  // namespace
}  // namespace reelmesh::test
