// Optimizers compared with those of PyTorch (tools/reference/make_optimizer_data.py).
#include "ops/optimizer.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "support/data_folder.hpp"
#include "support/expect_error.hpp"

namespace reelmesh::ops {
namespace {

std::vector<float> read_floats(std::istream& in, std::size_t count) {
  std::vector<float> values;
  for (std::string word; values.size() < count && in >> word;) {
    values.push_back(std::strtof(word.c_str(), nullptr));
  }
  EXPECT_EQ(values.size(), count);
  return values;
}

double read_double(std::istream& in) {
  std::string word;
  EXPECT_TRUE(in >> word);
  return std::strtod(word.c_str(), nullptr);
}

// Parameters with the moments of the optimizer.
struct State {
  State(std::vector<float> start, const Optimizer& optimizer, const OptimizerSettings& settings)
      : parameters(std::move(start)),
        first(optimizer.moments(settings).size() > 0 ? parameters.size() : 0),
        second(optimizer.moments(settings).size() > 1 ? parameters.size() : 0) {}
  std::vector<float> parameters, first, second;
};

TEST(Optimizer, AgreesWithPyTorch) {
  constexpr std::size_t elements = 9;
  std::ifstream file(test::data_folder() / "train/optimizer.txt");
  const Optimizer* optimizer = nullptr;
  OptimizerSettings settings;
  double clip = 0;
  std::vector<State> states;
  std::int64_t step = 0;
  int steps = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind == "optimizer") {
      std::string name;
      in >> name;
      optimizer = &optimizer_named(name);
      in >> settings.beta1 >> settings.beta2 >> settings.weight_decay >> settings.epsilon >>
          settings.momentum >> clip;
    } else if (kind == "start") {
      states = {State(read_floats(in, elements), *optimizer, settings)};
      step = 0;
    } else if (kind == "step") {
      const double rate = read_double(in), norm = read_double(in);
      std::vector<float> gradients = read_floats(in, elements);
      const std::vector<float> expected = read_floats(in, elements);
      State& state = states.at(0);
      const double factor = clip > 0 ? std::min(clip / (norm + 1e-6), 1.0) : 1;
      update(*optimizer, state.parameters, gradients, state.first, state.second,
             {++step, rate, factor}, settings);
      for (std::size_t i = 0; i < elements; ++i) {
        // The next step begins from equal values, or from ones that differ by a rounding.
        const float tolerance = 4e-7F * std::max(std::abs(expected[i]), 0.01F);
        EXPECT_NEAR(state.parameters[i], expected[i], tolerance) << line << ", element " << i;
      }
      ++steps;
    }
  }
  EXPECT_EQ(steps, 44);
}

TEST(Optimizer, UpdatesAnyPartWithTheSameBits) {
  constexpr std::size_t count = 40000;  // several tasks
  std::vector<float> start(count), computed(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<float>(i);
    start[i] = std::sin(x);
    computed[i] = std::cos(3 * x) / (1 + x);
  }
  for (const Optimizer& optimizer : optimizers()) {
    const OptimizerSettings settings{.momentum = 0.8};
    State whole(start, optimizer, settings), parts(start, optimizer, settings);
    for (const std::int64_t step : {1, 2, 3}) {
      const Update by{step, 1e-3, 0.7};
      std::vector<float> gradients = computed;
      update(optimizer, whole.parameters, gradients, whole.first, whole.second, by, settings);
      EXPECT_EQ(gradients, std::vector<float>(count)) << optimizer.name;
      gradients = computed;
      for (std::size_t begin = 0; begin < count; begin += 1237) {
        const std::size_t size = std::min<std::size_t>(1237, count - begin);
        const auto part = [&](std::vector<float>& values) {
          return values.empty() ? std::span<float>() : std::span(values).subspan(begin, size);
        };
        update(optimizer, part(parts.parameters), part(gradients), part(parts.first),
               part(parts.second), by, settings);
      }
    }
    SCOPED_TRACE(optimizer.name);
    EXPECT_EQ(whole.parameters, parts.parameters);
    EXPECT_EQ(whole.first, parts.first);
    EXPECT_EQ(whole.second, parts.second);
    EXPECT_NE(whole.parameters, start);
  }
}

TEST(Optimizer, RefusesOtherLengths) {
  std::vector<float> two(2), three(3);
  test::expect_error(
      Status::internal, [&] { update(optimizer_named("adamw"), two, two, two, three, {}, {}); },
      "2 parameters by adamw has 2 gradients and 2 and 3 moments");
}

}  // namespace
}  // namespace reelmesh::ops
