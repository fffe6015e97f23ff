#pragma once
// The interface of a sampler to the denoising loop: the timesteps of a clip and the arithmetic of a
// step. Samplers hold only tables; the caller keeps the state between steps.
#include <functional>
#include <span>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// x0 = sample·x + prediction·p for each element: the clean latents that the model's prediction p
/// for the latents x means.
struct CleanFactors {
  float sample = 1, prediction = 0;
};

class Sampler {
 public:
  /// Fills the span (host memory) with this rank's box of the next noise array of the latents.
  /// Noise is always drawn on the host, so that a seed gives the same noise on all devices.
  using DrawNoise = std::function<void(std::span<float> box)>;

  virtual ~Sampler() = default;
  Sampler() = default;
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// Number of calls of the model, one per step. May exceed the requested number of steps.
  virtual int calls() const = 0;
  /// The timestep that the model is called with in step i.
  virtual double timestep(int i) const = 0;

  /// x: this rank's box of the latents after i steps, float32, replaced by that after i + 1 steps.
  /// prediction: the model's guided prediction for x, float32, on the same device. history: tensors
  /// shaped as x that one step passes to the next; empty before step 0. All devices give the bits
  /// of the host, except where the derived class says otherwise.
  virtual void step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
                    const DrawNoise& draw) const = 0;

  /// Of step i.
  virtual CleanFactors clean_factors(int i) const = 0;
};

/// The clean latents (x0) that a prediction means, on the host. x, prediction: as Sampler::step
/// takes them; channels of the prediction after those of x are ignored.
Tensor clean_latents(const CleanFactors& factors, const Tensor& prediction, const Tensor& x);

}  // namespace reelmesh
