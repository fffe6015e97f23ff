#include "ops/optimizer.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/clones.hpp"
#include "base/error.hpp"
#include "ops/parallel.hpp"

namespace reelmesh::ops {
namespace {

using Names = std::span<const std::string_view>;
using S = OptimizerSettings;

constexpr std::int64_t elements_of_task = std::int64_t{1} << 14;

// torch.lerp, which begins from the nearer end.
struct Lerp {
  explicit Lerp(double kept) : weight(static_cast<float>(1 - kept)), kept(1 - weight) {}
  [[gnu::always_inline]] float operator()(float from, float to) const {
    const float difference = to - from;
    return weight < 0.5F ? from + weight * difference : to - difference * kept;
  }
  float weight, kept;
};

// Each optimizer's numbers of an update are computed in float64 and rounded once, as PyTorch does.

struct AdamW {
  AdamW(const Update& by, const S& s)
      : factor(static_cast<float>(by.factor)),
        decay(static_cast<float>(1 - by.rate * s.weight_decay)),
        mean(s.beta1),
        second_kept(static_cast<float>(s.beta2)),
        second_weight(static_cast<float>(1 - s.beta2)),
        epsilon(static_cast<float>(s.epsilon)) {
    const auto step = static_cast<double>(by.step);
    const double first_correction = 1 - std::pow(s.beta1, step);
    const double second_correction = 1 - std::pow(s.beta2, step);
    step_size = static_cast<float>(-(by.rate / first_correction));
    second_root = static_cast<float>(std::sqrt(second_correction));
  }

  [[gnu::always_inline]] void operator()(float& parameter, float gradient, float& first,
                                         float& second) const {
    gradient *= factor;
    parameter *= decay;
    first = mean(first, gradient);
    second = second * second_kept + second_weight * gradient * gradient;
    const float denominator = std::sqrt(second) / second_root + epsilon;
    parameter += step_size * first / denominator;
  }

  static constexpr std::array settings{&S::beta1, &S::beta2, &S::weight_decay, &S::epsilon};
  static Names moments(const S&) {
    static constexpr std::array<std::string_view, 2> names{"first_moment", "second_moment"};
    return names;
  }

  float factor, decay;
  Lerp mean;
  float second_kept, second_weight, epsilon;
  float step_size = 0, second_root = 0;
};

struct Lion {
  Lion(const Update& by, const S& s)
      : factor(static_cast<float>(by.factor)),
        decay(static_cast<float>(1 - by.rate * s.weight_decay)),
        rate(static_cast<float>(by.rate)),
        direction_kept(static_cast<float>(s.beta1)),
        direction_weight(static_cast<float>(1 - s.beta1)),
        kept(static_cast<float>(s.beta2)),
        weight(static_cast<float>(1 - s.beta2)) {}

  [[gnu::always_inline]] void operator()(float& parameter, float gradient, float& momentum,
                                         float&) const {
    gradient *= factor;
    const float direction = momentum * direction_kept + direction_weight * gradient;
    const float sign = static_cast<float>(direction > 0) - static_cast<float>(direction < 0);
    parameter = parameter * decay - rate * sign;
    momentum = momentum * kept + weight * gradient;
  }

  static constexpr std::array settings{&S::beta1, &S::beta2, &S::weight_decay};
  static Names moments(const S&) {
    static constexpr std::array<std::string_view, 1> names{"momentum"};
    return names;
  }

  float factor, decay, rate, direction_kept, direction_weight, kept, weight;
};

struct Sgd {
  Sgd(const Update& by, const S& s)
      : factor(static_cast<float>(by.factor)),
        rate(static_cast<float>(-by.rate)),
        kept(static_cast<float>(s.momentum)) {}

  // Without momentum it is not kept: `momentum` is 0.
  [[gnu::always_inline]] void operator()(float& parameter, float gradient, float& momentum,
                                         float&) const {
    momentum = momentum * kept + gradient * factor;
    parameter += rate * momentum;
  }

  static constexpr std::array settings{&S::momentum};
  static Names moments(const S& s) {
    static constexpr std::array<std::string_view, 1> names{"momentum"};
    return s.momentum == 0 ? Names() : names;
  }

  float factor, rate, kept;
};

// Elements of moments that are not kept are those of one variable, 0 before each update.
template <class Rule>
REELMESH_CLONES void update_elements(const Rule& rule, float* __restrict parameters,
                                     float* __restrict gradients, float* __restrict first,
                                     float* __restrict second, std::int64_t count) {
  if (second != nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      rule(parameters[i], gradients[i], first[i], second[i]);
      gradients[i] = 0;
    }
  } else if (first != nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      float none = 0;
      rule(parameters[i], gradients[i], first[i], none);
      gradients[i] = 0;
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      float none = 0, neither = 0;
      rule(parameters[i], gradients[i], none, neither);
      gradients[i] = 0;
    }
  }
}

template <class Rule>
void update_all(std::span<float> parameters, std::span<float> gradients, std::span<float> first,
                std::span<float> second, const Update& by, const S& settings) {
  const Rule rule(by, settings);
  const auto part = [](std::span<float> of, std::int64_t begin) {
    return of.empty() ? nullptr : of.data() + begin;
  };
  parallel_parts(std::ssize(parameters), elements_of_task,
                 [&](std::int64_t begin, std::int64_t size) {
                   update_elements(rule, parameters.data() + begin, gradients.data() + begin,
                                   part(first, begin), part(second, begin), size);
                 });
}

template <class Rule>
constexpr Optimizer row(std::string_view name) {
  return {name, Rule::settings, Rule::moments, update_all<Rule>};
}

constexpr std::array table{row<AdamW>("adamw"), row<Lion>("lion"), row<Sgd>("sgd")};

}  // namespace

bool Optimizer::uses(Setting setting) const {
  return std::ranges::find(settings, setting) != settings.end();
}

std::span<const Optimizer> optimizers() { return table; }

const Optimizer& optimizer_named(std::string_view name) {
  const auto* const found = std::ranges::find(table, name, &Optimizer::name);
  expect(found != table.end(), "there is no optimizer {}", name);
  return *found;
}

void update(const Optimizer& optimizer, std::span<float> parameters, std::span<float> gradients,
            std::span<float> first, std::span<float> second, const Update& by,
            const OptimizerSettings& settings) {
  const std::size_t count = parameters.size(), moments = optimizer.moments(settings).size();
  expect(gradients.size() == count && first.size() == (moments > 0 ? count : 0) &&
             second.size() == (moments > 1 ? count : 0),
         "an update of {} parameters by {} has {} gradients and {} and {} moments", count,
         optimizer.name, gradients.size(), first.size(), second.size());
  optimizer.update(parameters, gradients, first, second, by, settings);
}

}  // namespace reelmesh::ops
