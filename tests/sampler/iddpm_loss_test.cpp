#include "sampler/iddpm_loss.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace reelmesh {
namespace {

struct Values {
  float clean, noise, predicted, variance;
};
const std::vector<Values> values{{0.3F, -0.7F, -0.2F, 0.4F},   {-1.2F, 0.1F, 0.15F, -0.9F},
                                 {0.9995F, 1.3F, 1.1F, 0.95F}, {-0.9995F, -0.4F, 0.3F, 0.0F},
                                 {2.5F, 0.0F, 0.02F, -0.3F},   {0.0F, 0.6F, 0.6F, 1.0F}};

TEST(IddpmLoss, HasTheDerivativesOfItsSum) {
  const IddpmLoss loss(IddpmConfig{});
  for (const std::int64_t timestep : {0, 1, 37, 601, 999}) {
    for (const auto& [clean, noise, predicted, variance] : values) {
      const auto found = loss.at(timestep, clean, noise, predicted, variance);
      EXPECT_FLOAT_EQ(static_cast<float>(found.d_noise), 2 * (predicted - noise));
      constexpr float step = 1.0F / 1024;  // exact in float32
      const double higher = loss.at(timestep, clean, noise, predicted, variance + step).loss;
      const double lower = loss.at(timestep, clean, noise, predicted, variance - step).loss;
      EXPECT_NEAR(found.d_variance, (higher - lower) / (2 * double{step}),
                  1e-4 * std::max(std::abs(found.d_variance), 1e-2))
          << "timestep " << timestep << ", clean " << clean;
    }
  }
}

// The weight is that of the squared error, and not of the bound.
TEST(IddpmLoss, IsWeighted) {
  const IddpmLoss loss(IddpmConfig{});
  for (const std::int64_t timestep : {0, 37, 999}) {
    for (const auto& [clean, noise, predicted, variance] : values) {
      const auto one = loss.at(timestep, clean, noise, predicted, variance);
      const auto found = loss.at(timestep, clean, noise, predicted, variance, 0.25);
      const double error = double{predicted} - double{noise};
      EXPECT_NEAR(one.loss - found.loss, 0.75 * error * error, 1e-12 * std::max(1.0, one.loss));
      EXPECT_EQ(found.d_noise, 0.25 * one.d_noise);
      EXPECT_EQ(found.d_variance, one.d_variance);
    }
  }
}

// The bound by its definition: the divergence of two normal distributions, whose means are computed
// from the noisy latents.
TEST(IddpmLoss, IsTheDivergenceOfThePosterior) {
  const IddpmConfig config;
  const IddpmLoss loss(config);
  const std::vector<double>& alpha_bar = loss.alpha_bar();
  for (const std::int64_t timestep : {50, 601, 999}) {
    const double now = alpha_bar[std::size_t(timestep)],
                 before = alpha_bar[std::size_t(timestep) - 1];
    const double beta = 1 - now / before;
    for (const auto& [clean, noise, predicted, variance] : values) {
      const double x = std::sqrt(now) * clean + std::sqrt(1 - now) * noise;
      const double found_clean = std::sqrt(1 / now) * x - std::sqrt(1 / now - 1) * predicted;
      const auto mean = [&](double of_clean) {
        return beta * std::sqrt(before) / (1 - now) * of_clean +
               (1 - before) * std::sqrt(1 - beta) / (1 - now) * x;
      };
      const double smallest = std::log(beta * (1 - before) / (1 - now)), largest = std::log(beta);
      const double found = smallest + (largest - smallest) * (double{variance} + 1) / 2;
      const double difference = mean(clean) - mean(found_clean);
      const double nats = 0.5 * (found - smallest - 1 + std::exp(smallest - found) +
                                 difference * difference * std::exp(-found));
      const double error = double{predicted} - double{noise};
      EXPECT_NEAR(loss.at(timestep, clean, noise, predicted, variance).loss,
                  error * error + nats / std::numbers::ln2, 1e-6)
          << timestep;
    }
  }
}

// At timestep 0 a value is likelier the closer the prediction is to it, and no loss is infinite.
TEST(IddpmLoss, IsALikelihoodAtFirst) {
  const IddpmLoss loss(IddpmConfig{});
  double last = 0;
  for (const float error : {0.0F, 1.0F, 10.0F, 1000.0F}) {
    const double found = loss.at(0, 0.3F, 0.5F, 0.5F + error, 0.0F).loss - double{error} * error;
    EXPECT_TRUE(std::isfinite(found));
    EXPECT_GE(found, last);
    last = found;
  }
  EXPECT_NEAR(last, -std::log2(1e-12), 1e-3);
}

}  // namespace
}  // namespace reelmesh
