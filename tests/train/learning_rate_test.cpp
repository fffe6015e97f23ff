// Learning rates compared with those of diffusers (tools/reference/make_optimizer_data.py).
#include "train/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "support/data_folder.hpp"

namespace reelmesh::train {
namespace {

constexpr double reference_rate = 3e-4;

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
    settings.schedule = &ops::rate_schedule_named(name);
    in >> settings.warmup >> settings.steps >> settings.rate_shape.cycles >>
        settings.rate_shape.power >> settings.min_rate;
    for (std::int64_t step = 0; step < settings.steps; ++step) {
      std::string expected;
      in >> expected;
      EXPECT_DOUBLE_EQ(learning_rate(settings, step), std::strtod(expected.c_str(), nullptr))
          << line << ", " << step;
    }
    ++schedules;
  }
  EXPECT_EQ(schedules, 17);
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
