// Gradients of LoRAs and of all parameters on devices: equal to PyTorch's, with the same bits as on
// one rank.
#include "support/gpu_ranks.hpp"
#include "support/groups.hpp"
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
    first_rank = test::world().range(0, 1);
  }
  // Of these cases the first and the last; in tests/long all.
  static std::vector<const char*> some(std::vector<const char*> cases) {
    if (tests_are_long()) return cases;
    return {cases.front(), cases.back()};
  }
  // What the first rank computes while the others wait, for all of them (text_of).
  template <class Compute>
  std::string by_first_rank(Compute&& compute) const {
    std::string text;
    if (first_rank.member()) text = text_of(compute());
    test::wait_asleep(test::world());
    return test::world().broadcast(text, 0);
  }
  comm::Group first_rank;
};

// A gradient in 16 bits, whose loss is near that of the case.
template <class Case>
CaseGradient near(const Case& c, CaseGradient gradient) {
  EXPECT_NEAR(gradient.loss / c.facts.at("loss").template get<double>(), 1, 2e-2);
  return gradient;
}

INSTANTIATE_TEST_SUITE_P(Transports, GradientsOnGpu, testing::ValuesIn(transports_of_models()),
                         transport_name);

TEST_P(GradientsOnGpu, EqualPyTorchOnEveryLayout) {
  const int ranks = world.size();
  for (const char* name : some({"rotary_ff", "sincos", "all.rotary"})) {
    const GradientCase c = case_of(name);
    const std::string first = by_first_rank([&] {
      const CaseGradient alone =
          gradient_of(c, {.group = first_rank, .device = device, .parts = {1, 1, 1}});
      expect_reference(alone, c, 1e-5);
      return alone;
    });
    for (const Residence residence : {Residence::replicated, Residence::sharded, Residence::host}) {
      GradientRun run{.group = world, .device = device, .parts = {1, ranks, 1}};
      run.residence = residence;
      EXPECT_EQ(text_of(gradient_of(c, run)), first) << name << ", rows";
    }
  }
}

TEST_P(GradientsOnGpu, HaveTheSameBitsIn16Bits) {
  const int ranks = world.size();
  for (const char* name : some({"all.sincos", "rotary_ff"})) {
    const GradientCase c = case_of(name);
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
      if (dtype == DType::float16 && !tests_are_long()) continue;
      GradientRun run{.group = first_rank, .device = device, .dtype = dtype, .parts = {1, 1, 1}};
      const std::string first = by_first_rank([&] { return near(c, gradient_of(c, run)); });
      run.group = world;
      run.parts = {ranks, 1, 1};
      run.ring = ranks;
      EXPECT_EQ(text_of(gradient_of(c, run)), first) << name << " in " << name_of(dtype);
    }
  }
}

TEST_P(GradientsOnGpu, OfOpenSoraEqualItsCodeOnEveryLayout) {
  const int ranks = world.size();
  const OpenSoraGradientCase noise("v1_0.first"), flow("v1_2.odd");
  const std::string first = by_first_rank([&] {
    const CaseGradient alone = gradient_of(noise, {.group = first_rank, .device = device});
    expect_reference(alone, noise);
    return alone;
  });
  if (ranks == 1) return;
  const OpenSoraRun frames{.group = world, .device = device, .frame_parts = ranks};
  EXPECT_EQ(text_of(gradient_of(noise, frames)), first) << "frames";
  OpenSoraRun run{.group = first_rank, .device = device, .dtype = DType::bfloat16};
  const std::string narrow = by_first_rank([&] { return near(flow, gradient_of(flow, run)); });
  run.group = world;
  run.residence = Residence::sharded;
  EXPECT_EQ(text_of(gradient_of(flow, run)), narrow) << "rows, sharded weights";
}

TEST_P(GradientsOnGpu, OfWanEqualDiffusersOnEveryLayout) {
  const int ranks = world.size();
  for (const char* name : some({"all", "lora.odd"})) {
    const WanGradientCase c(name);
    GradientRun run{.group = first_rank, .device = device, .parts = {1, 1, 1}};
    const std::string first = by_first_rank([&] {
      const CaseGradient alone = gradient_of(c, run);
      expect_reference(alone, c);
      return alone;
    });
    run.dtype = DType::bfloat16;
    const std::string narrow = by_first_rank([&] { return near(c, gradient_of(c, run)); });
    if (ranks == 1) continue;
    run.group = world;
    run.parts = {1, ranks, 1};
    run.residence = Residence::sharded;
    EXPECT_EQ(text_of(gradient_of(c, run)), narrow) << name << " in bfloat16, rows";
    run.dtype = DType::float32;
    run.residence = Residence::replicated;
    run.ring = ranks;
    EXPECT_EQ(text_of(gradient_of(c, run)), first) << name << ", rows in a ring";
  }
}

}  // namespace
}  // namespace reelmesh::test
