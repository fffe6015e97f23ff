#include "sampler/cogvideox.hpp"

#include <utility>

#include "base/error.hpp"
#include "sampler/steps.hpp"

namespace reelmesh {
namespace {

constexpr std::string_view ddim_class = "CogVideoXDDIMScheduler";
constexpr std::string_view dpm_class = "CogVideoXDPMScheduler";

}  // namespace

SamplerKind sampler_kind_of_class(std::string_view name) {
  if (name == ddim_class) return SamplerKind::ddim;
  if (name == dpm_class) return SamplerKind::dpm;
  fail(Status::data, "found the class {}, expected {} or {}", name, ddim_class, dpm_class);
}

SamplerKind sampler_kind_of_option(std::string_view name) {
  if (name == "ddim") return SamplerKind::ddim;
  if (name == "dpm") return SamplerKind::dpm;
  fail(Status::usage, "sample.scheduler is \"{}\", expected ddim or dpm", name);
}

std::string_view scheduler_class(SamplerKind kind) {
  return kind == SamplerKind::ddim ? ddim_class : dpm_class;
}

void DdimSampler::step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& /*history*/,
                       const DrawNoise& /*draw*/) const {
  ddim_step(ddim_coefficients(schedule_, i), prediction, x);
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

std::unique_ptr<const Sampler> make_sampler(SamplerKind kind, NoiseSchedule schedule) {
  if (kind == SamplerKind::ddim) return std::make_unique<DdimSampler>(std::move(schedule));
  return std::make_unique<DpmSampler>(std::move(schedule));
}

}  // namespace reelmesh
