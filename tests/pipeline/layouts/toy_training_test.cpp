// The toy family says nothing about gradients: what trains it comes from its forward function.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "layout/clip_layout.hpp"
#include "models/common/random_weights.hpp"
#include "pipeline/layouts/run_rows.hpp"
#include "pipeline/layouts/toy_family.hpp"
#include "support/ranks.hpp"
#include "train/computed_gradient.hpp"
#include "train/replica.hpp"

namespace reelmesh::test {
namespace {

const Shape latents{3, 6, 8};

class ToyTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    static const bool added = (add_toy_family(), true);
    static_cast<void>(added);
    const std::filesystem::path parts = std::filesystem::path(REELMESH_TEST_DATA) / "cogvideox";
    const std::filesystem::path text_encoder = parts / "sincos" / "text_encoder";
    if (world().rank() == 0) write_toy_model(folder_.path(), text_encoder);
    world().barrier();
    ModelPaths paths;
    paths.root = folder_.path();
    paths.text_encoder = text_encoder;
    paths.complete();
    family_ = Family::open(paths);
  }

  std::unique_ptr<Trainable> model(const comm::Group& group, const std::optional<LoraShape>& lora,
                                   DType dtype, Residence residence = Residence::replicated) const {
    return family_->trainable(family_->open(ModelPart::transformer), dtype,
                              {.residence = residence, .group = group}, {lora});
  }

  static DenoiseTask task_of(const comm::Group& group) {
    DenoiseTask task{.group = group, .latents = latents};
    task.layout.mesh = {1, 1, group.size()};
    task.layout.tokens = Layout::cut({latents[0], latents[1] / 2, latents[2] / 2}, 1, group.size());
    task.layout.latents = latents_of_tokens(task.layout.tokens, {1, 2, 2}, latents);
    return task;
  }

  TrainingSample sample_of(const DenoiseTask& task, DType dtype) const {
    const auto own = [&](unsigned seed) {
      const Tensor whole = random_tensor({latents[0], 4, latents[1], latents[2]}, seed);
      return own_part(whole, task.layout.latents.with_axis(1, 4), task.group);
    };
    return {.timestep = 400,
            .latents = own(1),
            .target = own(2),
            .text = random_tensor({5, 1, family_->text_encoder().d_model}, 3, dtype)};
  }
  static constexpr std::int64_t elements = 3 * 4 * 6 * 8;

  const comm::Group alone_ = world().split(world().rank());
  SharedFolder folder_{world()};
  std::unique_ptr<const Family> family_;
};

// What is trained: all parameters as they are, or a LoRA that changes something.
std::vector<Tensor> values_of(const Trainable& model) {
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < model.matrices().size(); ++i) {
    const TrainedMatrix& matrix = model.matrices()[i];
    if (model.targets().empty()) {
      values.push_back(model.initial(i).clone());
    } else {
      Tensor value = Tensor::empty({matrix.rows, matrix.columns}, DType::float32);
      fill_uniform(value, matrix.name, 5, 0.3F);
      values.push_back(value);
    }
  }
  return values;
}

void set(Trainable& model, const std::vector<Tensor>& values) {
  model.set_together([&](std::size_t first, std::size_t count) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
    return std::vector<Tensor>(begin, begin + static_cast<std::ptrdiff_t>(count));
  });
}

const std::optional<LoraShape> all_parameters,
    lora = LoraShape{.targets = {"query", "value", "to_text"}, .rank = 3, .alpha = 6},
    lora_with_dropout = LoraShape{.targets = lora->targets,
                                  .rank = 3,
                                  .alpha = 6,
                                  .dropout = {.probability = 0.3, .seed = 4}};

// Of the elements with the largest gradient of each matrix.
TEST_F(ToyTraining, HasTheGradientsOfFiniteDifferences) {
  if (world().rank() > 0) return;
  for (const auto& shape : {all_parameters, lora, lora_with_dropout}) {
    const bool drops = shape && shape->dropout.probability > 0;
    const auto model = this->model(alone_, shape, DType::float32);
    const std::vector<Tensor> values = values_of(*model);
    set(*model, values);
    const DenoiseTask task = task_of(alone_);
    const TrainingSample sample = sample_of(task, DType::float32);
    const auto prepared = model->prepare(task);
    const CaseGradient found =
        computed_gradient(*model, *prepared, sample, alone_, elements, !drops);
    if (drops) {
      EXPECT_NE(prepared->losses_together(sample).value() / double{elements}, found.loss);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto gradient = found.gradients[i].span<float>();
      const auto largest =
          std::ranges::max_element(gradient, {}, [](float x) { return std::abs(x); });
      const auto at = static_cast<std::size_t>(largest - gradient.begin());
      const auto loss = [&](float change) {
        std::vector<Tensor> moved = values;
        moved[i] = moved[i].clone();
        moved[i].span<float>()[at] += change;
        set(*model, moved);
        const ops::ExactSum losses =
            drops ? prepared->gradient_together(sample, [](std::size_t, const Tensor&) {})
                  : prepared->losses_together(sample);
        return losses.value() / double{elements};
      };
      constexpr float step = 2e-2F;
      const double expected = (loss(step) - loss(-step)) / (2 * double{step});
      EXPECT_NEAR(*largest, expected, 1e-2 * std::abs(expected) + 1e-5) << found.names[i];
      // What is added to all keys does not change attention.
      if (found.names[i] != "key.bias") {
        EXPECT_GT(std::abs(*largest), 1e-4) << found.names[i];
      }
    }
  }
}

// Losses and values after some steps.
TEST_F(ToyTraining, LearnsWithTheSameBitsOnEveryLayout) {
  TrainSettings settings;
  settings.learning_rate = 1e-2;
  settings.lora.targets = lora->targets;
  settings.lora.rank = lora->rank;
  for (const auto& [method, dropout] : std::initializer_list<std::pair<const char*, double>>{
           {"full", 0}, {"lora", 0}, {"lora", 0.2}}) {
    settings.method = &train_method_named(method);
    settings.lora.dropout = dropout;
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      std::vector<Tensor> first;
      std::vector<double> first_losses;
      for (const auto& [ranks, residence] :
           std::initializer_list<std::pair<int, Residence>>{{1, Residence::replicated},
                                                            {2, Residence::replicated},
                                                            {3, Residence::replicated},
                                                            {3, Residence::sharded}}) {
        const comm::Group group = world().range(0, ranks);
        if (!group.member()) continue;
        const auto model = this->model(group, lora_shape(settings), dtype, residence);
        const DenoiseTask task = task_of(group);
        train::TrainedReplica own(*model, task, alone_, settings);
        own.use_values();
        std::vector<double> losses;
        for (std::int64_t step = 0; step < 6; ++step) {
          const ops::ExactSum of_rank = own.compute(sample_of(task, dtype)).losses;
          std::vector<std::int64_t> sums{of_rank.high, of_rank.middle, of_rank.low, of_rank.lost};
          group.sum(sums);
          losses.push_back(ops::ExactSum{sums[0], sums[1], sums[2], sums[3]}.value());
          own.update(step, own.parameters().gradient_norm_together(1), 1);
        }
        EXPECT_LT(losses.back(), losses.front());
        const std::vector<Tensor> values =
            own.parameters().values_together(0, model->matrices().size());
        if (ranks == 1) first_losses = losses;
        if (ranks == 1) std::ranges::transform(values, std::back_inserter(first), &Tensor::clone);
        if (world().rank() > 0) continue;
        EXPECT_EQ(losses, first_losses) << ranks << " ranks";
        for (std::size_t i = 0; i < first.size(); ++i) {
          EXPECT_TRUE(same_bits(values[i], first[i])) << model->matrices()[i].name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh::test
