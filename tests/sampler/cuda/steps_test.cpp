#include "sampler/cuda/steps.hpp"
#include "sampler/guidance.hpp"
#include "sampler/iddpm.hpp"
#include "sampler/rectified_flow.hpp"
#include "sampler/unipc.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

// Latents are float32; their columns are whole packs (16 bytes), or not.
class Step : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, Step, testing::Values(DType::float32), type_name);

const std::vector<Shape> shapes{{2, 4, 3, 8}, {1, 4, 3, 7}};

TEST_P(Step, Ddim) {
  const DdimCoefficients c{0.7F, 0.71F, 0.9F, 0.2F};
  for (const Shape& shape : shapes) {
    const Tensor v = random_tensor(shape, 1);
    Tensor x = random_tensor(shape, 2), z = there(x);
    ddim_step(c, v, x);
    gpu::ddim_step(c, there(v), z);
    EXPECT_TRUE(same_bits(back(z), x));
  }
}

TEST_P(Step, DpmOfBothOrders) {
  DpmCoefficients c{0.7F, 0.71F, 1.5F, 0.5F, 0.9F, -0.3F, 0.1F, false};
  for (const Shape& shape : shapes) {
    Tensor x = random_tensor(shape, 1), z = there(x);
    Tensor clean = Tensor::zeros(shape, DType::float32), kept = there(clean);
    for (const bool second : {false, true, true}) {
      c.second_order = second;
      const Tensor v = random_tensor(shape, 2), noise = random_tensor(shape, 3);
      dpm_step(c, v, noise, clean, x);
      gpu::dpm_step(c, there(v), there(noise), kept, z);
      EXPECT_TRUE(same_bits(back(z), x));
      EXPECT_TRUE(same_bits(back(kept), clean));
    }
  }
}

TEST_P(Step, Guidance) {
  for (const Shape& shape : {Shape{2, 8, 3, 4}, {3, 4, 3, 7}, {3, 3, 1, 8}, {0, 4, 2, 4}}) {
    for (const std::int64_t channels : {std::int64_t{1}, std::int64_t{3}, shape[1]}) {
      const Tensor a = random_tensor(shape, 1);
      Tensor b = random_tensor(shape, 2), z = there(b);
      guide_channels(6.5, channels, a, b);
      gpu::guide_channels(6.5, channels, there(a), z);
      EXPECT_TRUE(same_bits(back(z), b)) << to_string(shape) << channels;
    }
  }
}

// Compared with exp in float64: exp in float32, as on the host, is not always correctly rounded.
TEST_P(Step, Iddpm) {
  const IddpmCoefficients c{1.3F, 0.8F, 0.1F, 0.9F, -9.0F, -3.0F};
  for (const Shape& shape : shapes) {
    const Tensor x = random_tensor(shape, 1), noise = random_tensor(shape, 2);
    const Tensor prediction = random_tensor({shape[0], 2 * shape[1], shape[2], shape[3]}, 3);
    Tensor z = there(x), last = there(x);
    gpu::iddpm_step(c, false, there(prediction), there(noise), z);
    gpu::iddpm_step(c, true, there(prediction), Tensor(), last);
    const std::int64_t frame = shape[1] * shape[2] * shape[3];
    const Tensor got = back(z), mean = back(last);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const float* of = prediction.data<float>() + i / frame * 2 * frame + i % frame;
      const float epsilon = of[0], between = of[frame], was = x.data<float>()[i];
      const float clean = 1.3F * was - 0.8F * epsilon;
      const float expected = 0.1F * clean + 0.9F * was;
      EXPECT_EQ(mean.data<float>()[i], expected) << i;
      const double part = (double{between} + 1) / 2;
      const double log_variance = part * -3 + (1 - part) * -9;
      const double deviation = std::exp(log_variance / 2) * noise.data<float>()[i];
      EXPECT_NEAR(got.data<float>()[i], expected + deviation, 1e-6 * (1 + std::abs(deviation)));
    }
  }
}

TEST_P(Step, UniPcOfAllOrders) {
  for (const Shape& shape : shapes) {
    const UniPc sampler({.shift = 3}, 5);
    Tensor x = random_tensor(shape, 1), z = there(x);
    std::vector<Tensor> host, device;
    for (int i = 0; i < 5; ++i) {
      const Tensor v = random_tensor(shape, 2 + static_cast<unsigned>(i));
      sampler.step(i, v, x, host, {});
      sampler.step(i, there(v), z, device, {});
      EXPECT_TRUE(same_bits(back(z), x)) << i;
      for (std::size_t n = 0; n < 3; ++n) EXPECT_TRUE(same_bits(back(device[n]), host[n])) << n;
    }
  }
}

TEST_P(Step, RectifiedFlowReadsTheFirstChannels) {
  for (const Shape& shape : {Shape{2, 4, 3, 8}, {2, 3, 1, 7}, {2, 4, 1, 7}}) {
    for (const std::int64_t channels : {shape[1], shape[1] + 1, 2 * shape[1]}) {
      const RectifiedFlow sampler({}, 1, {64, 64, 17});  // one step of length 1
      Tensor x = random_tensor(shape, 1), z = there(x);
      const Tensor v = random_tensor({shape[0], channels, shape[2], shape[3]}, 2);
      std::vector<Tensor> history;
      sampler.step(0, v, x, history, {});
      gpu::flow_step(1.0F, there(v), z);
      EXPECT_TRUE(same_bits(back(z), x)) << to_string(shape) << channels;
    }
  }
}

}  // namespace
}  // namespace reelmesh::test
