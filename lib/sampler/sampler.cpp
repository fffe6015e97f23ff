#include "sampler/sampler.hpp"

#include <utility>

#include "base/error.hpp"
#include "sampler/steps.hpp"

namespace reelmesh {

SamplerKind sampler_kind_of_class(std::string_view name) {
  if (name == "CogVideoXDDIMScheduler") return SamplerKind::ddim;
  if (name == "CogVideoXDPMScheduler") return SamplerKind::dpm;
  fail(Status::data,
       "scheduler_config.json: _class_name is \"{}\", expected CogVideoXDDIMScheduler or "
       "CogVideoXDPMScheduler",
       name);
}

SamplerKind sampler_kind_of_option(std::string_view name) {
  if (name == "ddim") return SamplerKind::ddim;
  if (name == "dpm") return SamplerKind::dpm;
  fail(Status::usage, "sample.scheduler is \"{}\", expected ddim or dpm", name);
}

Sampler::Sampler(SamplerKind kind, Schedule schedule)
    : kind_(kind), schedule_(std::move(schedule)) {}

int Sampler::draws(int i) const {
  if (kind_ == SamplerKind::ddim) return 0;
  return i == 0 || schedule_.target(i) < 0 ? 1 : 2;
}

void Sampler::step(int i, const Tensor& v, const Tensor& x, const DrawNoise& draw) {
  expect(i == 0 || i == next_, "sampler step {} where {} was to follow", i, next_);
  if (kind_ == SamplerKind::ddim) {
    ddim_step(ddim_coefficients(schedule_, i), v, x);
  } else {
    if (i == 0) {
      clean_ = Tensor::zeros(x.shape(), DType::float32, x.device());
      noise_ = Tensor::empty(x.shape(), DType::float32);
    }
    for (int n = 0; n < draws(i); ++n) draw(noise_.span<float>());  // the last one counts
    dpm_step(dpm_coefficients(schedule_, i), v, noise_.on(x.device()), clean_, x);
  }
  next_ = i + 1;
}

}  // namespace reelmesh
