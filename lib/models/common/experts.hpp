#pragma once
// A model of two transformers, experts, that divide the steps by their timesteps (Wan 2.2 A14B).
#include <array>
#include <functional>

#include "models/common/denoiser.hpp"

namespace reelmesh {

/// Which of two experts takes steps with this timestep.
constexpr int expert_of(double timestep, double boundary) { return timestep >= boundary ? 0 : 1; }

class Experts final : public Denoiser {
 public:
  /// Makes an expert with its weights. Collective over the ranks of its weights.
  using Load = std::function<std::unique_ptr<const Denoiser>(int expert)>;
  /// boundary: of expert_of(). in_turn: an expert is loaded when it is used, and only then in
  /// memory; otherwise both are loaded now.
  Experts(Device device, double boundary, bool in_turn, Load load);

  Device device() const override { return device_; }
  bool capturable() const override { return used().capturable(); }
  int expert(double timestep) const override { return expert_of(timestep, boundary_); }
  bool use_together(int expert) const override;
  Tensor embed(double timestep) const override { return used().embed(timestep); }
  std::unique_ptr<Prepared> prepare(const DenoiseTask& task,
                                    std::span<const Conditioning> conditioning) const override {
    return used().prepare(task, conditioning);
  }

 private:
  const Denoiser& used() const;

  Device device_;
  double boundary_;
  bool in_turn_;
  Load load_;
  // Which weights are in memory is no part of what the model computes.
  mutable std::array<std::unique_ptr<const Denoiser>, 2> experts_;
  mutable int used_ = -1;
};

}  // namespace reelmesh
