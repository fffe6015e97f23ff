#include "sampler/cogvideox.hpp"

#include <utility>

#include "base/error.hpp"
#include "sampler/steps.hpp"

namespace reelmesh {
namespace {

template <class T>
std::unique_ptr<const Sampler> of_schedule(NoiseSchedule schedule) {
  return std::make_unique<T>(std::move(schedule));
}

}  // namespace

std::span<const CogVideoXSampler> cogvideox_samplers() {
  static constexpr CogVideoXSampler all[] = {
      {"ddim", "CogVideoXDDIMScheduler", of_schedule<DdimSampler>},
      {"dpm", "CogVideoXDPMScheduler", of_schedule<DpmSampler>}};
  return all;
}

CleanFactors DdimSampler::clean_factors(int i) const {
  const DdimCoefficients c = ddim_coefficients(schedule_, i);
  return {c.sample_to_clean, -c.v_to_clean};
}

void DdimSampler::step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& /*history*/,
                       const DrawNoise& /*draw*/) const {
  ddim_step(ddim_coefficients(schedule_, i), prediction, x);
}

CleanFactors DpmSampler::clean_factors(int i) const {
  const DpmCoefficients c = dpm_coefficients(schedule_, i);
  return {c.sample_to_clean, -c.v_to_clean};
}

void DpmSampler::step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
                      const DrawNoise& draw) const {
  if (i == 0) history = {Tensor::zeros(x.shape(), DType::float32, x.device())};
  expect(history.size() == 1, "DPM step {}: history has {} tensors, expected 1", i, history.size());
  Tensor noise = Tensor::empty(x.shape(), DType::float32, x.device().host());
  if (!x.device().only_shapes) {
    for (int n = 0; n < draws(i); ++n) draw(noise.span<float>());  // only the last draw is used
  }
  dpm_step(dpm_coefficients(schedule_, i), prediction, noise.on(x.device()), history.front(), x);
}

}  // namespace reelmesh
