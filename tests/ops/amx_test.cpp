#include "ops/amx.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ops/attention.hpp"
#include "ops/linear.hpp"
#include "ops/onednn.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::ops {
namespace {

using reelmesh::test::random_tensor;
using reelmesh::test::relative_error;
using reelmesh::test::same_bits;

// Memory of tiles begins at multiples of 64 bytes.
template <class T>
Tensor buffer(std::int64_t elements) {
  return Tensor::zeros({elements}, dtype_of<T>());
}

std::byte* bytes(Tensor& x) { return static_cast<std::byte*>(x.raw()); }

// Rows of A · B of these sizes by kernels, packed by them.
Tensor product_by(const amx::Kernels& use, const Tensor& a, const Tensor& transposed_b) {
  const std::int64_t rows = a.shape(0), columns = transposed_b.shape(0), inner = a.shape(1);
  Tensor left = buffer<BFloat16>(amx::packed_elements(rows, inner));
  Tensor right = buffer<BFloat16>(amx::packed_elements(columns, inner));
  amx::pack_left(a.data<BFloat16>(), inner, rows, inner, bytes(left));
  amx::pack_right_transposed(transposed_b.data<BFloat16>(), inner, inner, columns, bytes(right));
  Tensor c = buffer<float>(4 * 16 * 16), out = Tensor::zeros({rows, columns}, DType::bfloat16);
  use.begin();
  for (std::int64_t row = 0; row < rows; row += amx::block) {
    for (std::int64_t column = 0; column < columns; column += amx::block) {
      const std::int64_t height = std::min(amx::block, rows - row);
      const std::int64_t width = std::min(amx::block, columns - column);
      use.product({bytes(left) + 2 * amx::packed_elements(row, inner), amx::tile_count(height),
                   bytes(right) + 2 * amx::packed_elements(column, inner), amx::tile_count(width),
                   amx::step_count(inner), c.data<float>(), false},
                  nullptr);
      use.finish({c.data<float>(), amx::tile_count(height), height, width, nullptr, nullptr,
                  Activation::none, out.data<BFloat16>() + row * columns + column, columns});
    }
  }
  use.end();
  return out;
}

// As if the processor had AMX, without its instructions.
struct PlainKernels {
  PlainKernels() { amx::use_plain_kernels(true); }
  ~PlainKernels() { amx::use_plain_kernels(false); }
};

bool has_amx() { return uses_amx(DType::bfloat16); }

TEST(Amx, PlainKernelsMultiplyMatrices) {
  const PlainKernels plain;
  for (const auto& [rows, columns, inner] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {33, 47, 65}, {16, 32, 32}, {50, 20, 200}}) {
    const Tensor a = random_tensor({rows, inner}, 1, DType::bfloat16);
    const Tensor b = random_tensor({columns, inner}, 2, DType::bfloat16);
    const Tensor y = product_by(amx::plain_kernels(), a, b);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        double sum = 0, size = 0;
        for (std::int64_t k = 0; k < inner; ++k) {
          const double term = double(float(a.data<BFloat16>()[r * inner + k])) *
                              double(float(b.data<BFloat16>()[c * inner + k]));
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(float(y.data<BFloat16>()[r * columns + c]), sum,
                    0.004 * std::abs(sum) + 1e-6 * size)
            << r << " " << c << " of " << rows << " x " << columns << " x " << inner;
      }
    }
  }
}

// The processor's instructions and what stands in for them: a row of the table for each kernel.
TEST(Amx, TheProcessorGivesTheBitsOfPlainKernels) {
  if (!has_amx()) GTEST_SKIP() << "this processor has no AMX";
  for (const Shape& size : {Shape{1, 1, 1}, Shape{33, 47, 65}, Shape{64, 192, 1920}}) {
    const Tensor a = random_tensor({size[0], size[2]}, 1, DType::bfloat16);
    const Tensor b = random_tensor({size[1], size[2]}, 2, DType::bfloat16);
    const Tensor fast = product_by(amx::processor_kernels(), a, b);
    const PlainKernels plain;
    EXPECT_TRUE(same_bits(fast, product_by(amx::plain_kernels(), a, b))) << to_string(size);
  }
  const Tensor rows = random_tensor({32, 40}, 3, DType::bfloat16);
  for (const auto pack : {&amx::Kernels::transpose, &amx::Kernels::interleave}) {
    Tensor fast = buffer<BFloat16>(512), plain = buffer<BFloat16>(512);
    (amx::processor_kernels().*pack)(rows.data<BFloat16>(), 40, bytes(fast));
    (amx::plain_kernels().*pack)(rows.data<BFloat16>(), 40, bytes(plain));
    EXPECT_TRUE(same_bits(fast, plain));
  }
  const Tensor c = random_tensor({4 * 16 * 16}, 4), bias = random_tensor({32}, 5);
  const Tensor factors = random_tensor({32}, 6);
  for (const Activation activation : {Activation::none, Activation::silu, Activation::gelu_tanh}) {
    for (const std::int64_t columns : {1, 15, 16, 17, 32}) {
      Tensor fast = Tensor::zeros({32, 32}, DType::bfloat16);
      Tensor plain = Tensor::zeros({32, 32}, DType::bfloat16);
      for (const auto& [kernels, out] :
           {std::pair{&amx::processor_kernels(), &fast}, {&amx::plain_kernels(), &plain}}) {
        kernels->finish({c.data<float>(), 2, 29, columns, factors.data<float>(), bias.data<float>(),
                         activation, out->data<BFloat16>(), 32});
      }
      EXPECT_TRUE(same_bits(fast, plain)) << columns;
    }
  }
}

TEST(Amx, TheProcessorsSoftmaxHasTheBitsOfPlainKernels) {
  if (!has_amx()) GTEST_SKIP() << "this processor has no AMX";
  for (const std::int64_t keys : {1, 16, 17, 40, 511, 512}) {
    for (const bool biased : {false, true}) {
      const Tensor first = random_tensor({32 * 512}, 7), second = random_tensor({32 * 512}, 8);
      const Tensor bias = random_tensor({20, 600}, 9);
      std::vector<Tensor> results[2];
      for (int i = 0; i < 2; ++i) {
        Tensor largest = Tensor::empty({20}, DType::float32), sum = buffer<float>(20);
        for (float& x : largest.span<float>()) x = -INFINITY;
        Tensor totals = random_tensor({5 * 2 * 16 * 16}, 10), weights = buffer<BFloat16>(32 * 512);
        for (const Tensor& values : {first, second}) {  // the second changes some maxima
          Tensor scores = Tensor::of(values.span<float>(), values.shape());
          (i == 0 ? amx::processor_kernels() : amx::plain_kernels())
              .softmax({scores.data<float>(), 2, 20, keys, 3.5F,
                        biased ? bias.data<float>() : nullptr, 600, largest.data<float>(),
                        sum.data<float>(), totals.data<float>(), 5, bytes(weights)});
        }
        results[i] = {largest, sum, totals, weights};
      }
      for (std::size_t part = 0; part < 4; ++part) {
        EXPECT_TRUE(same_bits(results[0][part], results[1][part]))
            << keys << " keys, part " << part;
      }
    }
  }
}

TEST(Amx, LayersHaveTheSameBitsWithPlainKernels) {
  const Tensor x = random_tensor({70, 100}, 1, DType::bfloat16);
  const Tensor w = random_tensor({210, 100}, 2, DType::bfloat16);
  const Tensor b = random_tensor({210}, 3, DType::bfloat16);
  const Tensor qkv = random_tensor({530, 1, 3, 2, 24}, 4, DType::bfloat16);
  const auto compute = [&] {
    return std::pair{Linear(w, b)(x, Activation::gelu_tanh), attention(qkv, 0.2F)};
  };
  const auto real = compute();
  const auto plain = [&] {
    const PlainKernels use;
    return compute();
  }();
  EXPECT_LT(relative_error(plain.first, real.first), 5e-3);
  EXPECT_LT(relative_error(plain.second, real.second), 1e-2);
  if (!has_amx()) GTEST_SKIP() << "this processor has no AMX: bits are not compared";
  EXPECT_TRUE(same_bits(plain.first, real.first));
  EXPECT_TRUE(same_bits(plain.second, real.second));
}

// An inner dimension that is summed in several spans.
TEST(Amx, LongSumsAreThoseOfOneProduct) {
  const PlainKernels plain;
  const Tensor long_x = random_tensor({3, 4200}, 3, DType::bfloat16);
  const Tensor long_w = random_tensor({40, 4200}, 4, DType::bfloat16);
  const Linear spans(long_w);
  EXPECT_TRUE(same_bits(spans(long_x), product_by(amx::plain_kernels(), long_x, long_w)));
}

}  // namespace
}  // namespace reelmesh::ops
