// LoRAs of Open-Sora's transformers: loss and gradients are those of Open-Sora's own code with a
// LoRA of PEFT, and those of all parameters at the merged weights; and the same bits on every
// layout.
#include "models/common/random_weights.hpp"
#include "support/ranks.hpp"
#include "train/opensora_case.hpp"

namespace reelmesh {
namespace {

using test::CaseGradient;
using test::expect_same;
using test::OpenSoraGradientCase;
using test::OpenSoraRun;

const LoraShape shape{.targets = {"qkv", "proj", "q_linear", "kv_linear", "fc1", "fc2"},
                      .rank = 4,
                      .alpha = 6,
                      .ranks = {{"fc1", 7}}};

// A, or B transposed.
Tensor lora_value(const Trainable& model, std::size_t matrix) {
  const TrainedMatrix& found = model.matrices()[matrix];
  Tensor value = Tensor::empty({found.rows, found.columns}, DType::float32);
  fill_uniform(value, found.name, 5, 0.05F);
  return value;
}

// a [m, k] · b [k, n].
Tensor product(const Tensor& a, const Tensor& b) {
  Tensor out = Tensor::zeros({a.shape(0), b.shape(1)}, DType::float32);
  for (std::int64_t i = 0; i < a.shape(0); ++i) {
    for (std::int64_t j = 0; j < b.shape(1); ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < a.shape(1); ++k) {
        sum += double{a.data<float>()[i * a.shape(1) + k]} *
               double{b.data<float>()[k * b.shape(1) + j]};
      }
      out.data<float>()[i * b.shape(1) + j] = static_cast<float>(sum);
    }
  }
  return out;
}

class OpenSoraLoras : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(OpenSora, OpenSoraLoras,
                         ::testing::Values("v1_0", "v1_0.odd", "v1_0.first", "v1_2", "v1_2.odd"));

TEST_P(OpenSoraLoras, EqualTheReferenceOnEveryLayout) {
  const OpenSoraGradientCase c(GetParam(), "lora");
  const Lora lora = Lora::open(c.folder / c.kind());
  const auto value = [&](const Trainable& model, std::size_t matrix) {
    const LoraModule& module = lora.modules().at(model.targets()[matrix / 2].module);
    const Tensor stored =
        lora.file().load(matrix % 2 == 0 ? module.down : module.up, DType::float32);
    return matrix % 2 == 0 ? stored : train::transposed(stored);
  };
  const comm::Group& world = test::world();
  OpenSoraRun run{.group = world, .frame_parts = world.size(), .lora = shape, .value = value};
  const CaseGradient first = gradient_of(c, run);
  ASSERT_EQ(first.modules.size(), lora.modules().size());
  test::expect_reference(first, c);
  run.frame_parts = 1;
  expect_same(first, gradient_of(c, run), "rows");
}

TEST_P(OpenSoraLoras, HaveTheGradientsOfMergedWeights) {
  const OpenSoraGradientCase c(GetParam());
  const comm::Group& world = test::world();
  OpenSoraRun run{.group = world, .frame_parts = world.size(), .lora = shape, .value = lora_value};
  const CaseGradient found = gradient_of(c, run);

  std::map<std::string, LoraTarget> targets;
  std::map<std::string, std::pair<Tensor, Tensor>> values;  // A [rank, in], B [rank, out]
  {
    const Checkpoint weights =
        Checkpoint::open(c.reference.folder / "transformer", "diffusion_pytorch_model");
    const auto lora = in_training<STDiT>(weights, c.reference.transformer, DType::float32,
                                         {.group = world}, {shape});
    for (std::size_t i = 0; i < lora->targets().size(); ++i) {
      const LoraTarget& target = lora->targets()[i];
      targets[target.module + ".weight"] = target;
      values[target.module + ".weight"] = {lora_value(*lora, 2 * i), lora_value(*lora, 2 * i + 1)};
    }
  }
  run.lora = {};
  run.value = [&](const Trainable& model, std::size_t matrix) {
    Tensor value = model.initial(matrix).clone();
    const auto target = targets.find(model.matrices()[matrix].name);
    if (target == targets.end()) return value;
    const auto& [down, up] = values.at(target->first);
    const Tensor change = product(train::transposed(up), down);
    for (std::int64_t i = 0; i < value.numel(); ++i) {
      value.data<float>()[i] +=
          static_cast<float>(target->second.factor()) * change.data<float>()[i];
    }
    return value;
  };
  const CaseGradient merged = gradient_of(c, run);
  EXPECT_NEAR(found.loss / merged.loss, 1, 1e-5);
  ASSERT_EQ(found.gradients.size(), 2 * targets.size());
  for (std::size_t i = 0; i < merged.names.size(); ++i) {
    const auto target = targets.find(merged.names[i]);
    if (target == targets.end()) continue;
    const auto factor = static_cast<float>(target->second.factor());
    const auto& [down, up] = values.at(target->first);
    Tensor of_down = product(up, merged.gradients[i]);
    Tensor of_up = product(down, train::transposed(merged.gradients[i]));
    for (Tensor* expected : {&of_down, &of_up}) {
      for (float& value : expected->span<float>()) value *= factor;
    }
    const auto at = std::ranges::find(found.modules, target->second.module) - found.modules.begin();
    EXPECT_LT(test::relative_error(found.gradients[std::size_t(2 * at)], of_down), 1e-4)
        << merged.names[i];
    EXPECT_LT(test::relative_error(found.gradients[std::size_t(2 * at + 1)], of_up), 1e-4)
        << merged.names[i];
  }
}

TEST_P(OpenSoraLoras, HaveTheSameBitsOnEveryLayout) {
  const OpenSoraGradientCase c(GetParam());
  const comm::Group& world = test::world();
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    OpenSoraRun run{.group = world,
                    .dtype = dtype,
                    .frame_parts = world.size(),
                    .lora = shape,
                    .value = lora_value};
    run.lora->dropout = {.probability = 0.2, .seed = 3};
    const CaseGradient first = gradient_of(c, run);
    run.frame_parts = 1;
    expect_same(first, gradient_of(c, run), "rows");
    for (const Residence residence : {Residence::sharded, Residence::host}) {
      run.residence = residence;
      expect_same(first, gradient_of(c, run), "weights elsewhere");
    }
  }
}

}  // namespace
}  // namespace reelmesh
