// Gradients of all parameters of Open-Sora's transformers: equal to those of Open-Sora's own code,
// and the same bits on every layout.
#include "support/ranks.hpp"
#include "train/opensora_case.hpp"

namespace reelmesh {
namespace {

using test::expect_same;
using test::OpenSoraGradientCase;

class OpenSoraGradients : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(OpenSora, OpenSoraGradients,
                         ::testing::Values("v1_0", "v1_0.odd", "v1_0.first", "v1_2", "v1_2.odd"));

TEST_P(OpenSoraGradients, EqualTheReferenceOnEveryLayout) {
  const OpenSoraGradientCase c(GetParam());
  const comm::Group& world = test::world();
  const int ranks = world.size();
  const auto first = gradient_of(c, {.group = world, .frame_parts = ranks});
  test::expect_reference(first, c);
  for (int frames = 1; frames < ranks; ++frames) {
    if (ranks % frames != 0) continue;
    expect_same(first, gradient_of(c, {.group = world, .frame_parts = frames}),
                fmt::format("{} parts of frames", frames));
  }
  expect_same(
      first,
      gradient_of(c, {.group = world, .frame_parts = ranks, .residence = Residence::sharded}),
      "sharded weights");
  expect_same(first, gradient_of(c, {.group = world, .recomputes_blocks = false}), "kept blocks");
}

TEST_P(OpenSoraGradients, HaveTheSameBitsInBfloat16) {
  const OpenSoraGradientCase c(GetParam());
  const comm::Group& world = test::world();
  constexpr DType dtype = DType::bfloat16;
  const auto first = gradient_of(c, {.group = world, .dtype = dtype, .frame_parts = world.size()});
  EXPECT_NEAR(first.loss / c.facts.at("loss").get<double>(), 1, 2e-2);
  expect_same(first, gradient_of(c, {.group = world, .dtype = dtype, .frame_parts = 1}), "rows");
  expect_same(first, gradient_of(c, {.group = world, .dtype = dtype, .recomputes_blocks = false}),
              "kept blocks");
}

}  // namespace
}  // namespace reelmesh
