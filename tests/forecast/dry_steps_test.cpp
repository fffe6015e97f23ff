// Dry runs of a model whose steps differ.
#include <gtest/gtest.h>

#include "ops/linear.hpp"
#include "ops/pointwise.hpp"
#include "plan/denoise.hpp"
#include "support/dry_workloads.hpp"

namespace reelmesh::test {
namespace {

constexpr std::int64_t channels = 4, features = 4 * channels;
const ops::Patch patch{1, 2, 2};

// The second expert, of timesteps below 500, is three times as wide.
class TwoWidths final : public Denoiser {
 public:
  explicit TwoWidths(Device device) : device_(device) {
    for (const std::int64_t width : {32, 96}) {
      experts_.push_back({product(features, width), product(width, features)});
    }
  }

  Device device() const override { return device_; }
  int expert(double timestep) const override { return timestep < 500 ? 1 : 0; }
  bool use_together(int expert) const override {
    used_ = std::size_t(expert);
    return false;
  }
  Tensor embed(double) const override { return Tensor::empty({1}, DType::float32, device_); }
  std::unique_ptr<Prepared> prepare(const DenoiseTask&,
                                    std::span<const Conditioning>) const override {
    return std::make_unique<OnRanks>(experts_.at(used_));
  }

 private:
  struct Expert {
    ops::Linear in, out;
  };
  struct OnRanks final : Prepared {
    explicit OnRanks(const Expert& of) : expert(of) {}
    std::vector<Tensor> predict_together(std::span<const Tensor> latents, const Tensor&,
                                         Blocks) override {
      const Tensor tokens = ops::patchify(latents.front(), patch, DType::float32);
      const Tensor made = expert.out(expert.in(tokens));
      return {ops::unpatchify(made.reshape({tokens.shape(0), 1, features}), 0, patch,
                              latents.front().shape())};
    }
    Tensor residual(std::int64_t) const override { return {}; }
    void set_residual(std::int64_t, const Tensor&) override {}

    const Expert& expert;
  };

  ops::Linear product(std::int64_t in, std::int64_t out) const {
    return ops::Linear(Tensor::empty({out, in}, DType::float32, device_));
  }

  Device device_;
  std::vector<Expert> experts_;
  mutable std::size_t used_ = 0;
};

class TwoWidthsFamily final : public Family {
 public:
  const char* name() const override { return "two widths"; }
  const ModelPaths& paths() const override { return paths_; }
  const T5Config& text_encoder() const override { return text_; }
  ClipWorkload workload(const Clip& clip, std::int64_t text_tokens) const override {
    ClipWorkload workload;
    workload.denoise.latents = clip.latents;
    workload.denoise.text_tokens = text_tokens;
    workload.denoise.branches = 1;
    return workload;
  }
  std::vector<std::int64_t> share(const DenoiseLayout&, int rank) const override { return {rank}; }
  std::int64_t layers() const override { return 1; }
  std::unique_ptr<const Denoiser> denoiser(const OpenPart& open, DType, const WeightPlacement&,
                                           std::int64_t) const override {
    return std::make_unique<TwoWidths>(open(ModelPart::transformer).device());
  }
  std::unique_ptr<const Decoder> decoder(const Checkpoint&, DType) const override { return {}; }

 private:
  ClipDefaults defaults() const override { return {}; }
  void complete(Clip&, const Job&, const ClipRequest&, const Tokenizer&) const override {}

  ModelPaths paths_;
  T5Config text_;
};

DenoiseCost cost(const std::vector<double>& timesteps, std::vector<bool> computed = {}) {
  static const TwoWidthsFamily family;
  Clip clip = dry_clip({4, 8, 8}, channels, 4, 1, 1, 3);
  clip.sampling.sampler = std::make_shared<const StillSampler>(timesteps);
  if (!computed.empty()) {
    clip.sampling.computed = std::make_shared<const std::vector<bool>>(std::move(computed));
  }
  const Workload workload = dry_workload(family, clip, 1, {DType::float32, DType::float32, false});
  const DenoiseWorkload& w = workload.sizes.front().denoise;
  return w.costs->denoise(0, possible_layouts(w, {}).front().layout, 0, {});
}

TEST(DrySteps, AskForEachExpert) {
  const DenoiseCost first = cost({900, 800, 700}), second = cost({400, 300}),
                    both = cost({900, 800, 700, 400});
  EXPECT_GT(first.step.flops, 0);
  EXPECT_EQ(second.step.flops, 3 * first.step.flops);
  EXPECT_EQ(both.step.flops, (3 * first.step.flops + second.step.flops) / 4);
  EXPECT_GT(second.memory.working, first.memory.working);
  EXPECT_EQ(both.memory.working, second.memory.working) << "the most that any step takes";
  EXPECT_EQ(both.memory.weights, first.memory.weights);
}

TEST(DrySteps, CountWhatIsComputed) {
  const DenoiseCost all = cost({900, 800, 700, 600});
  EXPECT_EQ(cost({900, 800, 700, 600}, {true, false, true, true}).step.flops, all.step.flops);
  EXPECT_EQ(cost({900, 800, 400, 300}, {true, false, false, true}).step.flops, 2 * all.step.flops);
}

}  // namespace
}  // namespace reelmesh::test
