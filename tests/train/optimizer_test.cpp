// Optimizers and learning rates compared with those of PyTorch and diffusers
// (tools/reference/make_optimizer_data.py).
#include "train/optimizer.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "support/data_folder.hpp"
#include "support/expect_error.hpp"

namespace reelmesh::train {
namespace {

constexpr double reference_rate = 3e-4;

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
  explicit State(std::vector<float> start, OptimizerKind kind)
      : parameters(std::move(start)),
        first(moments_of(kind) > 0 ? parameters.size() : 0),
        second(first.size()) {}
  std::vector<float> parameters, first, second;
};

TEST(Optimizer, AgreesWithPyTorch) {
  constexpr std::size_t elements = 9;
  std::ifstream file(test::data_folder() / "train/optimizer.txt");
  TrainSettings settings;
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
      settings = {};
      settings.optimizer = name == "sgd" ? OptimizerKind::sgd : OptimizerKind::adamw;
      in >> settings.beta1 >> settings.beta2 >> settings.weight_decay >> settings.epsilon;
      const double clip = read_double(in);
      settings.clip = clip > 0 ? std::optional(clip) : std::nullopt;
    } else if (kind == "start") {
      states = {State(read_floats(in, elements), settings.optimizer)};
      step = 0;
    } else if (kind == "step") {
      const double rate = read_double(in), norm = read_double(in);
      const std::vector<float> gradients = read_floats(in, elements);
      const std::vector<float> expected = read_floats(in, elements);
      State& state = states.at(0);
      update(state.parameters, gradients, state.first, state.second,
             {++step, rate, clip_factor(norm, settings.clip)}, settings);
      for (std::size_t i = 0; i < elements; ++i) {
        // The next step begins from equal values, or from ones that differ by a rounding.
        const float tolerance = 4e-7F * std::max(std::abs(expected[i]), 0.01F);
        EXPECT_NEAR(state.parameters[i], expected[i], tolerance) << line << ", element " << i;
      }
      ++steps;
    }
  }
  EXPECT_EQ(steps, 24);
}

TEST(Optimizer, UpdatesAnyPartWithTheSameBits) {
  constexpr std::size_t count = 40000;  // several tasks
  std::vector<float> start(count), gradients(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<float>(i);
    start[i] = std::sin(x);
    gradients[i] = std::cos(3 * x) / (1 + x);
  }
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
    TrainSettings settings;
    settings.optimizer = kind;
    State whole(start, kind), parts(start, kind);
    for (const std::int64_t step : {1, 2, 3}) {
      const Update by{step, 1e-3, 0.7};
      update(whole.parameters, gradients, whole.first, whole.second, by, settings);
      for (std::size_t begin = 0; begin < count; begin += 1237) {
        const std::size_t size = std::min<std::size_t>(1237, count - begin);
        const auto part = [&](std::vector<float>& values) {
          return values.empty() ? std::span<float>() : std::span(values).subspan(begin, size);
        };
        update(part(parts.parameters), part(gradients), part(parts.first), part(parts.second), by,
               settings);
      }
    }
    EXPECT_EQ(whole.parameters, parts.parameters);
    EXPECT_EQ(whole.first, parts.first);
    EXPECT_EQ(whole.second, parts.second);
    EXPECT_NE(whole.parameters, start);
  }
}

TEST(Optimizer, RefusesOtherLengths) {
  std::vector<float> two(2), three(3);
  const TrainSettings settings;
  test::expect_error(
      Status::internal, [&] { update(two, two, two, three, {}, settings); },
      "2 parameters has 2 gradients and 2 and 3 moments");
}

TEST(LearningRate, AgreesWithDiffusers) {
  std::ifstream file(test::data_folder() / "train/optimizer.txt");
  int schedules = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind, name;
    in >> kind >> name;
    if (kind != "rates") continue;
    TrainSettings settings;
    settings.learning_rate = reference_rate;
    settings.schedule = name == "linear"   ? RateSchedule::linear
                        : name == "cosine" ? RateSchedule::cosine
                                           : RateSchedule::constant;
    in >> settings.warmup >> settings.steps;
    for (std::int64_t step = 0; step < settings.steps; ++step) {
      EXPECT_DOUBLE_EQ(learning_rate(settings, step), read_double(in)) << line << ", " << step;
    }
    ++schedules;
  }
  EXPECT_EQ(schedules, 9);
}

TEST(ClipFactor, ShortensLongGradientsOnly) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1);
  EXPECT_EQ(clip_factor(5, 1.0), 1 / (5 + 1e-6));
  EXPECT_EQ(clip_factor(5, std::nullopt), 1);
  EXPECT_EQ(clip_factor(0, 1.0), 1);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0), 0);
  EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 1.0)));
}

}  // namespace
}  // namespace reelmesh::train
