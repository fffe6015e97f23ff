// Gradients of LoRAs and of all parameters: equal to PyTorch's, and the same bits on every layout.
#include "support/ranks.hpp"
#include "train/gradient_case.hpp"

namespace reelmesh {
namespace {

using test::case_of;
using test::expect_same;
using test::GradientCase;
using test::GradientRun;

class Gradients : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(CogVideoX, Gradients,
                         ::testing::Values("sincos", "sincos.odd", "rotary", "rotary.odd",
                                           "rotary_ff", "v1_5", "v1_5.odd", "patterns", "i2v",
                                           "i2v_1_5", "all.sincos", "all.rotary", "all.v1_5",
                                           "all.i2v", "all.i2v_1_5"));

TEST_P(Gradients, EqualPyTorchOnEveryLayout) {
  const GradientCase c = case_of(GetParam());
  const comm::Group& world = test::world();
  const int ranks = world.size();
  const auto first = gradient_of(c, {.group = world, .parts = {1, ranks, 1}});
  test::expect_reference(first, c, 1e-5);
  expect_same(first, gradient_of(c, {.group = world, .parts = {ranks, 1, 1}, .ring = ranks}),
              "frames, ring");
  expect_same(first, gradient_of(c, {.group = world, .parts = {1, 1, ranks}}), "columns");
  expect_same(first,
              gradient_of(c, {.group = world, .parts = {1, ranks, 1}, .recomputes_blocks = false}),
              "kept blocks");
  for (const Residence residence : {Residence::sharded, Residence::host}) {
    // On a CPU weights that change cannot stay in the file.
    if (c.all_weights() && residence == Residence::host) continue;
    expect_same(first,
                gradient_of(c, {.group = world, .parts = {1, ranks, 1}, .residence = residence}),
                "weights elsewhere");
  }
}

TEST_P(Gradients, HaveTheSameBitsInBfloat16) {
  const GradientCase c = case_of(GetParam());
  const comm::Group& world = test::world();
  const int ranks = world.size();
  constexpr DType dtype = DType::bfloat16;
  const auto first = gradient_of(c, {.group = world, .dtype = dtype, .parts = {1, ranks, 1}});
  EXPECT_NEAR(first.loss / c.facts.at("loss").get<double>(), 1, 2e-2);
  GradientRun ring{.group = world, .dtype = dtype, .parts = {ranks, 1, 1}, .ring = ranks};
  expect_same(first, gradient_of(c, ring), "frames, ring");
  ring.recomputes_blocks = false;
  expect_same(first, gradient_of(c, ring), "kept blocks");
}

}  // namespace
}  // namespace reelmesh
