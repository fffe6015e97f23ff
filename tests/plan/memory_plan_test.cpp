#include "plan/memory_plan.hpp"
#include "plan/describe.hpp"

#include <gmock/gmock.h>

namespace reelmesh {
namespace {

using ::testing::HasSubstr;

TEST(Memory, TransformerAndDecoderAreOffloadedInTurnWhereTheyMust) {
  // Weights: transformer 100 MiB, decoder 60 MiB, text encoder 20 MiB.
  constexpr std::int64_t mib = 1 << 20;
  MemoryPlan memory;
  memory.program = 10 * mib;
  memory.ranks = {{{20 * mib, 0}, {}, {100 * mib, 10 * mib}, {60 * mib, 20 * mib}, mib}};
  EXPECT_EQ(memory.denoise(0), (10 + 1 + 100 + 10 + 60) * mib);
  EXPECT_EQ(memory.decode(0), (10 + 1 + 60 + 20 + 100) * mib);
  memory.limits = {200 * mib};
  memory = with_offloading(memory);
  EXPECT_FALSE(memory.offloads);
  memory.limits = {150 * mib};
  memory = with_offloading(memory);
  EXPECT_TRUE(memory.offloads);
  EXPECT_TRUE(memory.fits());
  EXPECT_EQ(memory.peak(0), (10 + 1 + 100 + 10) * mib);
  EXPECT_THAT(plan_text(describe(memory)), HasSubstr("offloaded"));
  memory.limits = {120 * mib};
  EXPECT_THAT(excess_text(memory), HasSubstr("while it denoises (100.00 MiB of weights"));
}

TEST(Memory, ExpertsAreInMemoryInTurnWhereBothDoNotFit) {
  // Weights: two experts of 100 MiB, decoder 60 MiB.
  constexpr std::int64_t mib = 1 << 20;
  MemoryPlan memory;
  memory.ranks = {{.denoise = {200 * mib, 10 * mib},
                   .decode = {60 * mib, 20 * mib},
                   .denoise_in_turn = {100 * mib, 15 * mib}}};
  const auto under = [&](std::int64_t limit) {
    memory.limits = {limit};
    return with_offloading(memory);
  };
  EXPECT_FALSE(under(300 * mib).experts_in_turn);
  EXPECT_TRUE(under(220 * mib).offloads) << "transformers alone, both of them";
  EXPECT_FALSE(under(220 * mib).experts_in_turn);
  const MemoryPlan one = under(180 * mib);
  EXPECT_TRUE(one.experts_in_turn && !one.unloads_decoder && !one.offloads);
  EXPECT_EQ(one.denoise(0), (100 + 15 + 60) * mib);
  EXPECT_EQ(one.decode(0), (60 + 20 + 100) * mib);
  const MemoryPlan alone = under(120 * mib);
  EXPECT_TRUE(alone.experts_in_turn && alone.offloads && alone.fits());
  memory.decoder = WeightsChoice::replicated;
  EXPECT_FALSE(under(120 * mib).offloads);
  EXPECT_TRUE(under(180 * mib).experts_in_turn);
  memory.ranks[0].denoise_in_turn = {};
  EXPECT_FALSE(under(180 * mib).experts_in_turn) << "one transformer";
}

TEST(Memory, EncoderOfInputsIsAloneExceptInSplitMode) {
  // Weights: encoder 40 MiB, decoder 60 MiB, transformer 30 MiB.
  constexpr std::int64_t mib = 1 << 20;
  MemoryPlan memory;
  memory.program = 10 * mib;
  memory.ranks = {{{20 * mib, 0}, {40 * mib, 100 * mib}, {}, {60 * mib, 20 * mib}, mib}};
  RankMemory& rank = memory.ranks[0];
  EXPECT_EQ(memory.encode(0), (10 + 1 + 40 + 100) * mib);
  EXPECT_EQ(memory.decode(0), (10 + 1 + 60 + 20) * mib);
  EXPECT_EQ(memory.peak(0), memory.encode(0));
  EXPECT_THAT(plan_text(describe(memory)), HasSubstr("input 151.00 MiB"));
  memory.limits = {100 * mib};
  EXPECT_THAT(excess_text(memory), HasSubstr("while it encodes inputs (40.00 MiB of weights"));

  rank.keeps_encoder = true;
  EXPECT_EQ(memory.encode(0), (10 + 1 + 40 + 100 + 60) * mib);
  EXPECT_EQ(memory.decode(0), (10 + 1 + 60 + 20 + 40) * mib);
  memory.unloads_decoder = true;
  EXPECT_EQ(memory.encode(0), (10 + 1 + 40 + 100) * mib);
  rank.encode = {};
  EXPECT_EQ(memory.encode(0), 0);
}

TEST(Memory, OfTheHostIsCountedBesideThatOfAGpu) {
  constexpr std::int64_t mib = 1 << 20;
  MemoryPlan memory;
  memory.ranks = {{.text = {20 * mib, 0}, .denoise = {100 * mib, 10 * mib}}};
  EXPECT_EQ(memory.host_peak(0), memory.peak(0)) << "on CPUs it is the same";
  EXPECT_TRUE(describe(memory)["by_rank"][0]["memory"]["host"].is_null());
  memory.host_program = 5 * mib;
  RankMemory& rank = memory.ranks[0];
  rank.text.host = 7 * mib;
  rank.text_on_host = 50 * mib;
  rank.denoise.host = 30 * mib;
  rank.decode.host = 40 * mib;
  rank.embeddings_on_host = mib;
  EXPECT_EQ(memory.peak(0), 110 * mib);
  EXPECT_EQ(memory.host_peak(0), (5 + 7 + 50) * mib);
  rank.weights_on_host = 60 * mib;
  EXPECT_EQ(memory.host_peak(0), (5 + 1 + 40 + 60) * mib);
  EXPECT_THAT(plan_text(describe(memory)),
              HasSubstr("denoise 110.00 MiB); 106.00 MiB of the host"));
  memory.offloads = true;
  EXPECT_EQ(memory.host_peak(0), (5 + 1 + 30 + 60) * mib);
}

TEST(Memory, OfManyRanksIsDescribedInFewLines) {
  MemoryPlan memory;
  for (int r = 0; r < 4000; ++r) memory.ranks.push_back({.text = {0, r}});
  EXPECT_THAT(plan_text(describe(memory)),
              HasSubstr("memory: ranks 16-3999 (plan --json has each)"));
  memory.ranks.assign(4000, {.text = {0, 1 << 20}});
  EXPECT_THAT(plan_text(describe(memory)),
              HasSubstr("memory: ranks 0-3999 1.00 MiB (text 1.00 MiB)"));
}

}  // namespace
}  // namespace reelmesh
