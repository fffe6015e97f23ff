#include "sampler/unipc.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "sampler/cuda/steps.hpp"
#include "sampler/step_arithmetic.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh {

UniPc::UniPc(const FlowSettings& settings, int steps)
    : schedule_(unipc_schedule(settings, steps)) {}

// Half the logarithm of the signal-to-noise ratio; ∞ after the last step.
double UniPc::lambda(int i) const {
  const double sigma = schedule_.sigmas.at(static_cast<std::size_t>(i));
  return std::log(1 - sigma) - std::log(sigma);
}

// From noise level `from` to the next one.
UniPcStep UniPc::step_between(int from, int order) const {
  const auto at = static_cast<std::size_t>(from);
  const double sigma = schedule_.sigmas.at(at), next = schedule_.sigmas.at(at + 1);
  const double h = lambda(from + 1) - lambda(from);
  UniPcStep step{.order = order,
                 .sample = static_cast<float>(next / sigma),
                 .clean = static_cast<float>((1 - next) * std::expm1(-h))};
  if (order == 2) step.ratio = static_cast<float>((lambda(from - 1) - lambda(from)) / h);
  return step;
}

UniPcCoefficients UniPc::coefficients(int i) const {
  // Of the step from noise level i on: 1 in the first and in the last one.
  const auto order = [&](int of) { return std::min({2, calls() - of, of + 1}); };
  UniPcCoefficients c{.sigma = schedule_.sigmas.at(static_cast<std::size_t>(i)),
                      .predictor = step_between(i, order(i))};
  if (i == 0) return c;
  c.corrector = step_between(i - 1, order(i - 1));
  if (c.corrector.order == 1) {
    c.change = 0.5F;
    return c;
  }
  // before + change = b1 and ratio·before + change = b2, as in UniC-2.
  const double h = lambda(i - 1) - lambda(i), e = std::expm1(h);  // both are negative
  const double ratio = (lambda(i - 2) - lambda(i - 1)) / -h;
  const double phi = e / h - 1, b1 = phi / e, b2 = (phi / h - 0.5) * 2 / e;
  const double before = (b1 - b2) / (1 - ratio);
  c.before = static_cast<float>(before);
  c.change = static_cast<float>(b1 - before);
  return c;
}

CleanFactors UniPc::clean_factors(int i) const {
  return {1, -schedule_.sigmas.at(static_cast<std::size_t>(i))};
}

void UniPc::step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
                 const DrawNoise& /*draw*/) const {
  if (i == 0) {
    history.clear();
    for (int n = 0; n < 3; ++n) {
      history.push_back(Tensor::zeros(x.shape(), DType::float32, x.device()));
    }
  }
  expect(history.size() == 3, "UniPC step {}: history has {} tensors, expected 3", i,
         history.size());
  expect(prediction.numel() == x.numel(), "UniPC step of {} values with {} predictions", x.numel(),
         prediction.numel());
  const UniPcCoefficients c = coefficients(i);
  UniPcKept kept{history[0], history[1], history[2]};
  const auto on_cpu = [&] {
    const std::span<const float> v = prediction.span<float>();
    const std::span<float> to = x.span<float>(), clean = kept.clean.span<float>(),
                           before = kept.clean_before.span<float>(),
                           sample = kept.sample.span<float>();
    for (std::size_t n = 0; n < to.size(); ++n) {
      to[n] = unipc_next(c, v[n], clean[n], before[n], sample[n], to[n]);
    }
  };
  dispatch(
      x.device(), [&] { gpu::unipc_step(c, prediction, kept, x); }, on_cpu);
}

}  // namespace reelmesh
