// Gradients of LoRAs and of all parameters on devices: equal to PyTorch's, with the same bits as on
// one rank.
#include "support/gpu_ranks.hpp"
#include "support/long.hpp"
#include "train/gradient_case.hpp"
#include "train/opensora_case.hpp"
#include "train/wan_case.hpp"

namespace reelmesh::test {
namespace {

class GradientsOnGpu : public RanksTest {
 protected:
  void SetUp() override {
    RanksTest::SetUp();
    if (IsSkipped()) return;
    for (int rank = 0; rank < test::world().size(); ++rank) {
      if (const comm::Group alone = test::world().range(rank, 1); alone.member()) self = alone;
    }
  }
  // Of these cases the first and the last; in tests/long all.
  static std::vector<const char*> some(std::vector<const char*> cases) {
    if (tests_are_long()) return cases;
    return {cases.front(), cases.back()};
  }
  CaseGradient alone(const GradientCase& c, DType dtype) const {
    return gradient_of(c, {.group = self, .device = device, .dtype = dtype, .parts = {1, 1, 1}});
  }
  comm::Group self;
};
INSTANTIATE_TEST_SUITE_P(Transports, GradientsOnGpu, testing::ValuesIn(transports_of_models()),
                         transport_name);

TEST_P(GradientsOnGpu, EqualPyTorchOnEveryLayout) {
  const int ranks = world.size();
  for (const char* name : some({"rotary_ff", "sincos", "all.rotary"})) {
    const GradientCase c = case_of(name);
    const CaseGradient first = alone(c, DType::float32);
    expect_reference(first, c, 1e-5);
    for (const Residence residence : {Residence::replicated, Residence::sharded, Residence::host}) {
      GradientRun run{.group = world, .device = device, .parts = {1, ranks, 1}};
      run.residence = residence;
      expect_same(first, gradient_of(c, run), fmt::format("{}, rows", name));
    }
  }
}

TEST_P(GradientsOnGpu, HaveTheSameBitsIn16Bits) {
  const int ranks = world.size();
  for (const char* name : some({"all.sincos", "rotary_ff"})) {
    const GradientCase c = case_of(name);
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
      if (dtype == DType::float16 && !tests_are_long()) continue;
      const CaseGradient first = alone(c, dtype);
      EXPECT_NEAR(first.loss / c.facts.at("loss").get<double>(), 1, 2e-2);
      expect_same(first,
                  gradient_of(c, {.group = world,
                                  .device = device,
                                  .dtype = dtype,
                                  .parts = {ranks, 1, 1},
                                  .ring = ranks}),
                  fmt::format("{} in {}", name, name_of(dtype)));
    }
  }
}

TEST_P(GradientsOnGpu, OfOpenSoraEqualItsCodeOnEveryLayout) {
  const int ranks = world.size();
  const OpenSoraGradientCase noise("v1_0.first"), flow("v1_2.odd");
  const CaseGradient first = gradient_of(noise, {.group = self, .device = device});
  expect_reference(first, noise);
  if (ranks == 1) return;
  expect_same(first, gradient_of(noise, {.group = world, .device = device, .frame_parts = ranks}),
              "frames");
  OpenSoraRun run{.group = self, .device = device, .dtype = DType::bfloat16};
  const CaseGradient narrow = gradient_of(flow, run);
  EXPECT_NEAR(narrow.loss / flow.facts.at("loss").get<double>(), 1, 2e-2);
  run.group = world;
  run.residence = Residence::sharded;
  expect_same(narrow, gradient_of(flow, run), "rows, sharded weights");
}

TEST_P(GradientsOnGpu, OfWanEqualDiffusersOnEveryLayout) {
  const int ranks = world.size();
  for (const char* name : some({"all", "lora.odd"})) {
    const WanGradientCase c(name);
    GradientRun run{.group = self, .device = device, .parts = {1, 1, 1}};
    const CaseGradient first = gradient_of(c, run);
    expect_reference(first, c);
    run.dtype = DType::bfloat16;
    const CaseGradient narrow = gradient_of(c, run);
    EXPECT_NEAR(narrow.loss / c.facts.at("loss").get<double>(), 1, 2e-2);
    if (ranks == 1) continue;
    run.group = world;
    run.parts = {1, ranks, 1};
    run.residence = Residence::sharded;
    expect_same(narrow, gradient_of(c, run), fmt::format("{} in bfloat16, rows", name));
    run.dtype = DType::float32;
    run.residence = Residence::replicated;
    run.ring = ranks;
    expect_same(first, gradient_of(c, run), fmt::format("{}, rows in a ring", name));
  }
}

}  // namespace
}  // namespace reelmesh::test
