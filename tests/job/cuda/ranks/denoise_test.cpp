// Denoising of a model with two experts, whose steps are captured as CUDA graphs.
#include "job/denoise.hpp"

#include "ops/pointwise.hpp"
#include "sampler/flow_euler.hpp"
#include "support/gpu_ranks.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::test {
namespace {

const Shape latent_shape{2, 4, 6};
constexpr std::int64_t latent_channels = 3;
constexpr int steps = 12;

// Each expert has another factor. Counts how often each of them computes.
class TwoExperts final : public Denoiser {
 public:
  explicit TwoExperts(Device device) : device_(device) {}

  Device device() const override { return device_; }
  int expert(double timestep) const override { return timestep < 500 ? 1 : 0; }
  bool use_together(int expert) const override {
    used_ = expert;
    return false;
  }
  Tensor embed(double timestep) const override {
    Tensor time = Tensor::empty(
        {latent_shape[0], latent_channels, latent_shape[1], latent_shape[2]}, DType::float32);
    for (float& value : time.span<float>()) value = float(timestep) / 1000;
    return time.on(device_);
  }
  std::unique_ptr<Prepared> prepare(const DenoiseTask&,
                                    std::span<const Conditioning>) const override {
    return std::make_unique<OnRanks>(calls, used_);
  }

  mutable std::array<int, 2> calls{};

 private:
  struct OnRanks final : Prepared {
    OnRanks(std::array<int, 2>& all_calls, int own) : calls(all_calls), expert(own) {}
    std::vector<Tensor> predict_together(std::span<const Tensor> latents, const Tensor& time,
                                         Blocks) override {
      ++calls.at(std::size_t(expert));
      return {ops::scaled(ops::multiply(latents.front(), time), expert == 1 ? -0.7F : 0.4F)};
    }
    Tensor residual(std::int64_t) const override { return {}; }
    void set_residual(std::int64_t, const Tensor&) override {}

    std::array<int, 2>& calls;
    int expert;
  };

  Device device_;
  mutable int used_ = 0;
};

class ExpertsOnGpu : public OnOwnDevice<testing::Test> {};

TEST_F(ExpertsOnGpu, HaveGraphsOfTheirOwn) {
  comm::Group self;
  for (int rank = 0; rank < test::world().size(); ++rank) {
    if (const comm::Group alone = test::world().range(rank, 1); alone.member()) self = alone;
  }
  Clip clip;
  clip.record.settings = {.fps = 8, .steps = steps, .seed = 5};
  clip.latents = latent_shape;
  clip.latent_channels = latent_channels;
  clip.sampling.sampler = std::make_shared<const FlowEuler>(FlowSettings{}, steps);
  DenoiseLayout layout;
  layout.tokens = Layout::replicated({2, 2, 3}, 1);
  layout.latents = Layout::replicated(latent_shape, 1);
  const Batch batch{clip};
  const std::vector<Conditioning> conditioning(1);
  const TwoExperts on_gpu(device), on_host(Device{});
  Denoising there(self, layout, batch, conditioning, on_gpu),
      here(self, layout, batch, conditioning, on_host);
  while (!here.finished()) {
    there.step_together();
    here.step_together();
    ASSERT_TRUE(same_bits(there.states().front().latents.on({}), here.states().front().latents))
        << "step " << here.states().front().step;
  }
  EXPECT_GT(on_host.calls[0], 2);
  EXPECT_GT(on_host.calls[1], 2);
  EXPECT_EQ(on_gpu.calls, (std::array{2, 2})) << "once eagerly and once to capture it";
}

}  // namespace
}  // namespace reelmesh::test
