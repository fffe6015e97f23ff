#pragma once
// What the denoising loop asks of a sampler: the timesteps of a clip and the arithmetic of a step.
// Samplers hold tables only; what passes from step to step is the caller's.
#include <functional>
#include <span>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {

class Sampler {
 public:
  /// Fills the span, of the host, with this rank's box of the next noise of the whole latents.
  /// Noise is drawn on the host whatever the device, so that a seed gives the same everywhere.
  using DrawNoise = std::function<void(std::span<float> box)>;

  virtual ~Sampler() = default;
  Sampler() = default;
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// How often the model is called: once a step. May be more than the steps that were asked for.
  virtual int calls() const = 0;
  /// What the model is called with in step i.
  virtual double timestep(int i) const = 0;

  /// x: this rank's box of the latents after i steps, float32, replaced by that after i + 1.
  /// prediction: the model's (guided) for it, float32, on the same device. history: tensors like x
  /// that this step leaves for the next; none before step 0. All devices give the bits of the host,
  /// except where the derived class says otherwise.
  virtual void step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
                    const DrawNoise& draw) const = 0;
};

}  // namespace reelmesh
