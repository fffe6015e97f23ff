#include "ops/group_norm.hpp"

#include "ops/cuda/ops.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

ops::GroupStatistics there(const ops::GroupStatistics& statistics) {
  return {test::there(statistics.mean), test::there(statistics.rstd)};
}
using test::there;

class Norm : public KernelTest {
 protected:
  static std::vector<std::int64_t> widths() { return {24, 37, 1152, size(200, 3072)}; }
  static Tensor random(const Shape& shape, unsigned seed) {
    return random_tensor(shape, seed, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Types, Norm, all_types, type_name);

TEST_P(Norm, RmsNorm) {
  std::vector<std::int64_t> all = widths();
  all.push_back(10240);  // the longest row: 40 KiB of shared memory
  for (const std::int64_t n : all) {
    const Tensor x = random({5, n}, 1), w = random({n}, 2);
    EXPECT_LT(
        relative_error(back(gpu::rms_norm(there(x), there(w), 1e-6F)), ops::rms_norm(x, w, 1e-6F)),
        tolerance())
        << n;
  }
}

TEST_P(Norm, ChangeSums) {
  for (const std::int64_t n : widths()) {
    const Tensor x = random({3, 2, n}, 1), before = random({3, 2, n}, 2);
    const Tensor sums = back(gpu::change_sums(there(x), there(before)));
    EXPECT_LT(relative_error(sums, ops::change_sums(x, before)), 1e-6) << n;
  }
}

TEST_P(Norm, LayerNormTakesWeightsOfBothTypes) {
  for (const std::int64_t n : widths()) {
    for (const DType type : {GetParam(), DType::float32}) {
      const Tensor x = random({5, n}, 1), w = random_tensor({n}, 2, type),
                   b = random_tensor({n}, 3, type);
      EXPECT_LT(relative_error(back(gpu::layer_norm(there(x), there(w), there(b), 1e-5F)),
                               ops::layer_norm(x, w, b, 1e-5F)),
                tolerance())
          << n;
    }
  }
}

TEST_P(Norm, ModulatedLayerNorm) {
  for (const std::int64_t n : widths()) {
    for (const std::int64_t rows : {1, 3}) {
      const Tensor x = random({4, 3, n}, 1), w = random({n}, 2), b = random({n}, 3);
      const Tensor table = random({rows, 6 * n}, 4);
      Tensor out = Tensor::empty(x.shape(), GetParam());
      Tensor z = Tensor::zeros(x.shape(), GetParam(), test_device());
      gpu::modulated_layer_norm(there(x), there(w), there(b), 1e-5F, {there(table), 3, 4}, z);
      ops::modulated_layer_norm(x, w, b, 1e-5F, {table, 3, 4}, out);
      EXPECT_LT(relative_error(back(z), out), tolerance()) << n;
    }
  }
}

TEST_P(Norm, AddGated) {
  for (const std::int64_t n : widths()) {
    Tensor x = random({4, 3, n}, 1), z = there(x);
    const Tensor y = random({4, 3, n}, 2), table = random({3, 6 * n}, 3);
    gpu::add_gated(z, there(y), there(table), 5, {});
    ops::add_gated(x, y, table, 5);
    EXPECT_TRUE(same_bits(back(z), x)) << n;
  }
}

// In one pass with the bits of two.
TEST_P(Norm, AddGatedAndNorm) {
  for (const std::int64_t n : widths()) {
    for (const std::int64_t rows : {1, 2}) {
      const std::int64_t tokens = 7;
      const Tensor y = there(random({tokens, 2, n}, 2)), w = there(random({n}, 3)),
                   b = there(random({n}, 4)), gates = there(random({rows, 6 * n}, 5)),
                   table = there(random({rows, 6 * n}, 6));
      Tensor x = there(random({tokens, 2, n}, 1)), sum = x.clone();
      Tensor out = Tensor::empty(x.shape(), GetParam(), test_device()), normed = out.clone();
      const ops::FirstTokens text{3, 3};
      gpu::add_gated_and_norm(x, y, {gates, 2, text}, w, b, 1e-5F, {table, 0, 1, text}, out);
      gpu::add_gated(sum, y, gates, 2, text);
      gpu::modulated_layer_norm(sum, w, b, 1e-5F, {table, 0, 1, text}, normed);
      EXPECT_TRUE(same_bits(back(x), back(sum))) << n << ", rows of tables: " << rows;
      EXPECT_TRUE(same_bits(back(out), back(normed))) << n << ", rows of tables: " << rows;
    }
  }
}

TEST_P(Norm, NormaliseAndRotate) {
  for (const std::int64_t n : {8, 9, 64, 72, 128}) {
    for (const bool rotate : {false, true}) {
      if (rotate && n % 2 != 0) continue;
      for (const bool centred : {false, true}) {
        Tensor x = random({5, 2, 3, 3, n}, 1), z = there(x);
        const ops::HeadNorm norm{random_tensor({n}, 2), centred ? random_tensor({n}, 3) : Tensor{},
                                 1e-6F};
        const Tensor c = rotate ? random_tensor({5, n}, 4) : Tensor{},
                     s = rotate ? random_tensor({5, n}, 5) : Tensor{};
        gpu::normalise_and_rotate(z, {there(norm.weight), there(norm.bias), norm.eps}, there(c),
                                  there(s), 0);
        ops::normalise_and_rotate(x, norm, c, s);
        EXPECT_LT(relative_error(back(z), x), tolerance()) << n << rotate << centred;
      }
    }
  }
}

TEST_P(Norm, NormTogetherAndRotate) {
  for (const std::int64_t n : {8, 10, 64, 128}) {
    for (const bool rotate : {false, true}) {
      Tensor x = random({5, 2, 2, 3, n}, 1), z = there(x);
      const Tensor weight = random_tensor({3 * n}, 2);
      const Tensor c = rotate ? random_tensor({5, n}, 3) : Tensor{},
                   s = rotate ? random_tensor({5, n}, 4) : Tensor{};
      gpu::norm_together_and_rotate(z, there(weight), 1e-6F, there(c), there(s));
      ops::norm_together_and_rotate(x, weight, 1e-6F, c, s);
      EXPECT_LT(relative_error(back(z), x), tolerance()) << n << rotate;
    }
  }
}

// Tables of shifts, scales and gates may be float32 beside 16-bit tokens.
TEST_P(Norm, TablesOfFloat32) {
  for (const std::int64_t n : {20, 64}) {
    const Tensor x = random({5, 2, n}, 1), y = random({5, 2, n}, 2);
    const Tensor w = random_tensor({n}, 3), b = random_tensor({n}, 4),
                 table = random_tensor({1, 3 * n}, 5);
    Tensor sum = there(x).clone(), out = Tensor::empty(x.shape(), x.dtype(), sum.device());
    gpu::add_gated_and_norm(sum, there(y), {there(table), 2, {}}, there(w), there(b), 1e-6F,
                            {there(table), 0, 1, {}}, out);
    Tensor sum_here = x.clone(), out_here = Tensor::empty(x.shape(), x.dtype());
    ops::add_gated_and_norm(sum_here, y, {table, 2, {}}, w, b, 1e-6F, {table, 0, 1, {}}, out_here);
    EXPECT_LT(relative_error(back(sum), sum_here), tolerance()) << n;
    EXPECT_LT(relative_error(back(out), out_here), tolerance()) << n;
  }
}

// One call for text and video has the bits of a call for each.
TEST_P(Norm, FirstTokensUseOtherChunks) {
  const std::int64_t tokens = 7, batch = 2;
  for (const std::int64_t n : widths()) {
    for (const std::int64_t rows : {std::int64_t{1}, batch}) {
      const Tensor x = there(random({tokens, batch, n}, 1)),
                   y = there(random({tokens, batch, n}, 2));
      const Tensor w = there(random({n}, 3)), b = there(random({n}, 4));
      const Tensor table = there(random({rows, 6 * n}, 5));
      for (const std::int64_t text : {std::int64_t{0}, std::int64_t{3}, tokens}) {
        Tensor normed = Tensor::empty(x.shape(), GetParam(), test_device()),
               of_each = normed.clone();
        Tensor sum = x.clone(), sum_of_each = x.clone();
        gpu::modulated_layer_norm(x, w, b, 1e-5F, {table, 0, 1, {text, 3}}, normed);
        gpu::add_gated(sum, y, table, 2, {text, 3});
        for (const bool video : {false, true}) {
          const std::int64_t first = video ? text : 0, count = video ? tokens - text : text;
          const int chunk = video ? 0 : 3;
          Tensor into = of_each.rows(first, count), into_sum = sum_of_each.rows(first, count);
          gpu::modulated_layer_norm(x.rows(first, count), w, b, 1e-5F,
                                    {table, chunk, chunk + 1, {}}, into);
          gpu::add_gated(into_sum, y.rows(first, count), table, chunk + 2, {});
        }
        EXPECT_TRUE(same_bits(back(normed), back(of_each))) << n << " after " << text;
        EXPECT_TRUE(same_bits(back(sum), back(sum_of_each))) << n << " after " << text;
      }
    }
  }
}

TEST_P(Norm, FirstTokensAreNotRotated) {
  const std::int64_t tokens = 7;
  for (const std::int64_t n : {8, 64, 72}) {
    const Tensor x = there(random({tokens, 2, 2, 3, n}, 1));
    const ops::HeadNorm norm{there(random_tensor({n}, 2)), there(random_tensor({n}, 3)), 1e-6F};
    for (const std::int64_t text : {std::int64_t{0}, std::int64_t{3}, tokens}) {
      const Tensor c = there(random_tensor({tokens - text, n}, 4)),
                   s = there(random_tensor({tokens - text, n}, 5));
      Tensor all = x.clone(), of_each = x.clone();
      gpu::normalise_and_rotate(all, norm, c, s, text);
      Tensor before = of_each.rows(0, text), after = of_each.rows(text, tokens - text);
      gpu::normalise_and_rotate(before, norm, {}, {}, 0);
      gpu::normalise_and_rotate(after, norm, c, s, 0);
      EXPECT_TRUE(same_bits(back(all), back(of_each))) << n << " after " << text;
    }
  }
}

TEST_P(Norm, GroupSumsAreThoseOfTheCpu) {
  for (const std::int64_t cell : {1, 2, 4}) {
    const Tensor x = random({3, 8, size(12, 60), size(32, 512)}, 1);
    const auto sums = gpu::group_sums(there(x), 4, cell), expected = ops::group_sums(x, 4, cell);
    ASSERT_EQ(sums.size(), expected.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(sums[i].high, expected[i].high);
      EXPECT_EQ(sums[i].middle, expected[i].middle);
      EXPECT_EQ(sums[i].low, expected[i].low);
      EXPECT_EQ(sums[i].lost, expected[i].lost);
    }
  }
}

TEST_P(Norm, GroupSumsCountWhatIsLost) {
  Tensor x = Tensor::zeros({1, 2, 2, 4}, DType::float32);
  x.data<float>()[5] = INFINITY;
  const auto sums = gpu::group_sums(there(x.to(GetParam())), 2, 1);
  EXPECT_EQ(sums[0].lost, 1);
  EXPECT_EQ(sums[1].lost, 0);
}

TEST_P(Norm, GroupStatisticsAreThoseOfTheCpu) {
  const Tensor x = random({3, 8, size(12, 60), size(32, 512)}, 1), z = there(x);
  const std::int64_t groups = 4;
  const auto count = static_cast<double>(x.numel() / groups);
  const auto expected = ops::group_statistics(ops::group_sums(x, groups, 2), count, 1e-6, {});
  for (const ops::GroupStatistics& statistics :
       {gpu::group_statistics(z, groups, 2, count, 1e-6),
        ops::group_statistics(gpu::group_sums(z, groups, 2), count, 1e-6, test_device())}) {
    EXPECT_TRUE(same_bits(back(statistics.mean), expected.mean));
    EXPECT_TRUE(same_bits(back(statistics.rstd), expected.rstd));
  }
}

TEST_P(Norm, GroupNorm) {
  for (const std::int64_t n : {12, 32}) {
    for (const bool with_silu : {false, true}) {
      const Tensor x = random({2, 3, 5, n}, 1), w = random_tensor({n}, 2),
                   b = random_tensor({n}, 3);
      const auto statistics = ops::group_statistics(x, 4, 1, 1e-5);
      EXPECT_TRUE(same_bits(
          back(gpu::group_norm(there(x), there(statistics), there(w), there(b), with_silu)),
          ops::group_norm(x, statistics, w, b, with_silu)));
    }
  }
}

TEST_P(Norm, SpatialNormSilu) {
  for (const std::int64_t n : {12, 32}) {
    const Tensor x = random({5, 4, 6, n}, 1);
    Tensor out = Tensor::empty(x.shape(), GetParam());
    const ops::SpatialNorm norm{ops::group_statistics(x, 2, 1, 1e-5),
                                random_tensor({n}, 2),
                                random_tensor({n}, 3),
                                random({2, 2, 3, n}, 4),
                                random({2, 2, 3, n}, 5),
                                {0, 0, 1, 1, 1}};
    ops::spatial_norm_silu(x, norm, out);
    Tensor z = there(x);
    gpu::spatial_norm_silu(z,
                           {there(norm.statistics), there(norm.weight), there(norm.bias),
                            there(norm.scale), there(norm.shift), norm.latent_frame},
                           z);
    EXPECT_TRUE(same_bits(back(z), out)) << n;
  }
}

}  // namespace
}  // namespace reelmesh::test
