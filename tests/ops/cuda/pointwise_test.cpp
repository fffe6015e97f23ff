// Pointwise kernels round in the same steps as the CPU, so results must be bitwise equal.
#include "ops/cuda/folding.hpp"
#include "ops/cuda/ops.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

class Pointwise : public KernelTest {
 protected:
  // Lengths of rows: whole packs (16 bytes), or not.
  static std::vector<std::int64_t> widths() { return {24, 37, size(64, 1920)}; }
  static Tensor random(const Shape& shape, unsigned seed) {
    return random_tensor(shape, seed, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Types, Pointwise, all_types, type_name);

TEST_P(Pointwise, Add) {
  for (const std::int64_t n : widths()) {
    Tensor x = random({5, 2, n}, 1), z = there(x);
    const Tensor y = random({5, 2, n}, 2);
    gpu::add(z, there(y));
    ops::add(x, y);
    EXPECT_TRUE(same_bits(back(z), x)) << n;
  }
}

TEST_P(Pointwise, MultiplyAndSilu) {
  for (const std::int64_t n : widths()) {
    const Tensor x = random({7, n}, 1), y = random({7, n}, 2);
    EXPECT_TRUE(same_bits(back(gpu::multiply(there(x), there(y))), ops::multiply(x, y))) << n;
    EXPECT_TRUE(same_bits(back(gpu::silu(there(x))), ops::silu(x))) << n;
    EXPECT_TRUE(same_bits(back(gpu::gelu(there(x))), ops::gelu(x))) << n;
  }
}

TEST_P(Pointwise, Average) {
  for (const std::int64_t n : widths()) {
    const Tensor x = random({7, n}, 1), y = random({7, n}, 2);
    Tensor mean = random({7, n}, 3), there_mean = there(mean);
    ops::average(x, y, mean);
    gpu::average(there(x), there(y), there_mean);
    EXPECT_TRUE(same_bits(back(there_mean), mean)) << n;
  }
}

TEST_P(Pointwise, Scaled) {
  for (const std::int64_t n : widths()) {
    const Tensor x = random({7, n}, 1);
    EXPECT_TRUE(same_bits(back(gpu::scaled(there(x), 5.4901F)), ops::scaled(x, 5.4901F))) << n;
  }
}

TEST_P(Pointwise, Dropped) {
  for (const std::int64_t n : widths()) {
    const Tensor x = random({5, 2, n}, 1);
    std::vector<std::int32_t> rows(10);
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = static_cast<std::int32_t>(70'000'000 - i * i);
    const Tensor numbers = Tensor::of<std::int32_t>(rows, {10});
    const ops::DropoutMask mask{.probability = 0.3, .key = 11, .columns = n + 9};
    EXPECT_TRUE(same_bits(back(ops::dropped(there(x), mask, there(numbers), 4)),
                          ops::dropped(x, mask, numbers, 4)))
        << n;
    EXPECT_TRUE(same_bits(back(ops::dropped(there(x), mask)), ops::dropped(x, mask))) << n;
  }
}

TEST_P(Pointwise, ChannelsToFrames) {
  for (const Shape& shape : {Shape{2, 3, 5, 16}, {1, 2, 2, 6}, {3, 0, 2, 8}}) {
    const Tensor x = random(shape, 1);
    const Tensor frames = back(gpu::channels_to_frames(there(x)));
    EXPECT_TRUE(same_bits(frames, ops::channels_to_frames(x))) << to_string(shape);
  }
}

TEST_P(Pointwise, Folding) {
  for (const ops::Folding folding : {ops::Folding{1, 2}, {2, 2}, {2, 2, 1}, {1, 1}}) {
    const std::int64_t frames = folding.missing > 0 ? 1 : 2 * folding.frames;
    const Shape large{frames, 2 * folding.side, 3 * folding.side, 16};
    for (const std::int64_t channels : {8, 16}) {
      const Shape small{(frames + folding.missing) / folding.frames, 2, 3, channels};
      Tensor x = random(small, 1), z = there(x);
      const Tensor y = random(large, 2);
      gpu::add_folded(z, there(y), folding);
      ops::add_folded(x, y, folding);
      EXPECT_TRUE(same_bits(back(z), x)) << channels;
      Tensor up = y.clone(), there_up = there(up);
      gpu::add_unfolded(there_up, there(x), folding);
      ops::add_unfolded(up, x, folding);
      EXPECT_TRUE(same_bits(back(there_up), up)) << channels;
    }
  }
}

TEST_P(Pointwise, AddTableTakesBothTypes) {
  for (const std::int64_t n : widths()) {
    for (const DType of_table : {GetParam(), DType::float32}) {
      Tensor x = random({6, 3, n}, 1), z = there(x);
      const Tensor table = random_tensor({6, n}, 2, of_table);
      gpu::add_table(z, there(table));
      ops::add_table(x, table);
      EXPECT_TRUE(same_bits(back(z), x)) << n;
    }
  }
}

TEST_P(Pointwise, RepeatForBatch) {
  for (const std::int64_t n : widths()) {
    const Tensor x = random({6, n}, 1);
    Tensor out = Tensor::zeros({6, 3, n}, GetParam());
    Tensor z = Tensor::zeros(out.shape(), GetParam(), test_device());
    gpu::repeat_for_batch(there(x), z);
    ops::repeat_for_batch(x, out);
    EXPECT_TRUE(same_bits(back(z), out)) << n;
  }
}

TEST_P(Pointwise, RepeatForBatchRepeatsEachItem) {
  for (const std::int64_t n : widths()) {
    const Tensor x = random({6, 2, n}, 1);
    Tensor out = Tensor::zeros({6, 6, n}, GetParam());
    Tensor z = Tensor::zeros(out.shape(), GetParam(), test_device());
    gpu::repeat_for_batch(there(x), z);
    ops::repeat_for_batch(x, out);
    EXPECT_TRUE(same_bits(back(z), out)) << n;
  }
}

TEST_P(Pointwise, JoinBatches) {
  for (const std::int64_t n : widths()) {
    const std::vector<Tensor> parts{random({6, 2, n}, 1), random({6, 1, n}, 2),
                                    random({6, 3, n}, 3)};
    std::vector<Tensor> theirs;
    for (const Tensor& part : parts) theirs.push_back(there(part));
    EXPECT_TRUE(same_bits(back(gpu::join_batches(theirs)), ops::join_batches(parts))) << n;
  }
}

TEST_P(Pointwise, PatchifyAndBack) {
  for (const ops::Patch patch : {ops::Patch{1, 2, 2}, ops::Patch{2, 2, 1}, ops::Patch{1, 1, 3}}) {
    const Shape latents{4, size(5, 16), 6, size(6, 90)};
    const Tensor x = random_tensor(latents, 1);
    const Tensor tokens = ops::patchify(x, patch, GetParam());
    EXPECT_TRUE(same_bits(back(gpu::patchify(there(x), patch, GetParam())), tokens));
    const Tensor two = random({tokens.shape(0), 2, tokens.shape(1)}, 2);
    EXPECT_TRUE(same_bits(back(gpu::unpatchify(there(two), 1, patch, latents)),
                          ops::unpatchify(two, 1, patch, latents)));
  }
}

TEST_P(Pointwise, ToPixels) {
  Tensor x = random({2, 5, 7, 3}, 1);
  EXPECT_TRUE(same_bits(back(gpu::to_pixels(there(x))), ops::to_pixels(x)));
  x = Tensor::of<float>({-1, 1, 0, 2, -2, INFINITY, -INFINITY, NAN}, {1, 1, 8}).to(GetParam());
  EXPECT_TRUE(same_bits(back(gpu::to_pixels(there(x))), ops::to_pixels(x)));
}

TEST_P(Pointwise, FlagNonFinite) {
  for (const std::int64_t n : widths()) {
    ops::FiniteCheck check(there(random({1}, 1)).device());
    check.add(there(random({5, n}, 1)));
    EXPECT_TRUE(check.finite());
    Tensor x = random_tensor({5, n}, 1);
    x.data<float>()[5 * n - 1] = NAN;
    check.add(there(x.to(GetParam())));
    check.add(there(random({5, n}, 2)));
    EXPECT_FALSE(check.finite());
  }
}

}  // namespace
}  // namespace reelmesh::test
