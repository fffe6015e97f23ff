// Gradients of all parameters, and of a LoRA, of Wan's transformer: equal to those of diffusers,
// and the same bits on every layout.
#include "support/ranks.hpp"
#include "train/wan_case.hpp"

namespace reelmesh {
namespace {

using test::expect_same;
using test::GradientRun;
using test::WanGradientCase;

class WanGradients : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Wan, WanGradients,
                         ::testing::Values("all", "all.odd", "lora", "lora.odd", "image.all",
                                           "image.lora"));

// Ranks that divide frames; rows, of which some ranks have none; in a ring.
TEST_P(WanGradients, EqualDiffusersOnEveryLayout) {
  const WanGradientCase c(GetParam());
  const comm::Group& world = test::world();
  const int ranks = world.size();
  GradientRun run{.group = world, .parts = {ranks, 1, 1}};
  const auto first = gradient_of(c, run);
  test::expect_reference(first, c);
  run.parts = {1, ranks, 1};
  expect_same(first, gradient_of(c, run), "rows");
  run.ring = ranks;
  expect_same(first, gradient_of(c, run), "rows in a ring");
  run.recomputes_blocks = false;
  expect_same(first, gradient_of(c, run), "kept blocks");
  run.recomputes_blocks = true;
  for (const Residence residence : {Residence::sharded, Residence::host}) {
    if (residence == Residence::host && !c.lora) continue;
    run.residence = residence;
    expect_same(first, gradient_of(c, run), "weights elsewhere");
  }
}

TEST_P(WanGradients, HaveTheSameBitsInBfloat16) {
  const WanGradientCase c(GetParam());
  const comm::Group& world = test::world();
  const int ranks = world.size();
  GradientRun run{.group = world, .dtype = DType::bfloat16, .parts = {1, 1, ranks}};
  const auto first = gradient_of(c, run);
  EXPECT_NEAR(first.loss / c.facts.at("loss").get<double>(), 1, 2e-2);
  run.parts = {1, ranks, 1};
  expect_same(first, gradient_of(c, run), "rows");
  run.recomputes_blocks = false;
  expect_same(first, gradient_of(c, run), "kept blocks");
}

}  // namespace
}  // namespace reelmesh
