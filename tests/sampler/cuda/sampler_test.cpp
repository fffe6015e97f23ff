// Complete runs of the samplers on a GPU: their state is on the device, noise comes from the host.
#include "sampler/cogvideox.hpp"

#include "sampler/flow_samplers.hpp"
#include "sampler/generator.hpp"
#include "sampler/guidance.hpp"
#include "sampler/iddpm.hpp"
#include "sampler/rectified_flow.hpp"
#include "support/released_scheduler.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

const Shape latent{3, 4, 6, 5};

class SamplerOnGpu : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, SamplerOnGpu, testing::Values(DType::float32), type_name);

// Starts with noise x, calls step(i, unconditional, prediction, x, draw) `calls` times, and returns
// x. Predictions are random, with `channels` channels; all tensors are on `device`.
template <class F>
Tensor run(Device device, int calls, std::int64_t channels, F&& step) {
  TorchGenerator generator(3);
  const auto draw = [&](std::span<float> box) {
    fill_noise(generator, latent, {0, 0, 0, 0}, latent, box.data());
  };
  Tensor first = Tensor::empty(latent, DType::float32);
  draw(first.span<float>());
  Tensor x = first.clone().on(device);
  for (int i = 0; i < calls; ++i) {
    const Shape shape{latent[0], channels, latent[2], latent[3]};
    const auto seed = static_cast<unsigned>(i);
    Tensor prediction = random_tensor(shape, 90 + seed).on(device);
    step(i, random_tensor(shape, seed).on(device), prediction, x, draw);
  }
  return x.on({});
}

TEST_P(SamplerOnGpu, CogVideoXHasTheBitsOfTheHost) {
  for (const CogVideoXSampler& kind : cogvideox_samplers()) {
    const auto sampled = [&](Device device) {
      const auto sampler = kind.make(NoiseSchedule(released_scheduler(), 6));
      std::vector<Tensor> history;
      return run(device, 6, latent[1],
                 [&](int i, const Tensor& a, Tensor& b, Tensor& x, const auto& draw) {
                   guide_channels(6.0, latent[1], a, b);
                   sampler->step(i, b, x, history, draw);
                 });
    };
    EXPECT_TRUE(same_bits(sampled(test_device()), sampled({}))) << kind.option;
  }
}

TEST_P(SamplerOnGpu, FlowSamplersHaveTheBitsOfTheHost) {
  for (const FlowSampler& kind : flow_samplers()) {
    const auto sampled = [&](Device device) {
      const auto sampler = kind.make({.shift = 5}, 6);
      std::vector<Tensor> history;
      return run(device, 6, latent[1],
                 [&](int i, const Tensor& a, Tensor& b, Tensor& x, const auto& draw) {
                   guide_channels(5.0, latent[1], a, b);
                   sampler->step(i, b, x, history, draw);
                 });
    };
    EXPECT_TRUE(same_bits(sampled(test_device()), sampled({}))) << kind.option;
  }
}

TEST_P(SamplerOnGpu, OpenSoraFollowsTheHost) {
  const auto diffused = [](Device device) {
    const Iddpm sampler({}, 6);
    std::vector<Tensor> history;
    return run(device, 6, 2 * latent[1],
               [&](int i, const Tensor& a, Tensor& b, Tensor& x, const auto& draw) {
                 guide_channels(7.0, 3, a, b);
                 sampler.step(i, b, x, history, draw);
               });
  };
  EXPECT_LT(relative_error(diffused(test_device()), diffused({})), 1e-6);
  const auto straight = [](Device device) {
    const RectifiedFlow sampler({}, 6, {64, 64, 17});
    std::vector<Tensor> history;
    return run(device, 6, 2 * latent[1],
               [&](int i, const Tensor& a, Tensor& b, Tensor& x, const auto& draw) {
                 guide_channels(7.0, 4, a, b);
                 sampler.step(i, b, x, history, draw);
               });
  };
  EXPECT_TRUE(same_bits(straight(test_device()), straight({})));
}

}  // namespace
}  // namespace reelmesh::test
