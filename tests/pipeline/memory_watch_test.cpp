#include "pipeline/memory_watch.hpp"

#include <gtest/gtest.h>

#include "base/memory_in_use.hpp"
#include "base/stop.hpp"
#include "job/host_memory.hpp"

namespace reelmesh::pipeline {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

// Of one rank on the host, which takes so much while it denoises, and little otherwise.
Plan plan_of(std::int64_t denoise) {
  Plan plan;
  plan.node = {0};
  plan.memory.ranks.resize(1);
  plan.memory.ranks[0].denoise.working = denoise;
  return plan;
}

TEST(MemoryWatch, RequestsANewPlanOnlyForAStageThatLacksMemory) {
  stop::reset();
  MemoryWatch watch{Device{}};
  const Plan plan = plan_of(std::int64_t{1} << 50);
  watch.look(Stage::text, plan, 0);
  EXPECT_FALSE(stop::leaving());
  EXPECT_FALSE(watch.found().has_value());
  watch.look(Stage::denoise, plan, 0);
  EXPECT_TRUE(stop::new_plan_requested());
  EXPECT_FALSE(stop::requested());
  ASSERT_TRUE(watch.found().has_value());
  EXPECT_TRUE(watch.found()->found.starts_with("needs ")) << watch.found()->found;
  EXPECT_NE(watch.found()->found.find(" while it denoises, found room for "), std::string::npos);
  EXPECT_FALSE(watch.found()->within_step);
  const std::string first = watch.found()->found;
  watch.note_failed_step("no memory left");
  EXPECT_EQ(watch.found()->found, first);
  watch.forget();
  watch.note_failed_step("no memory left");
  EXPECT_EQ(watch.found()->found, "no memory left");
  EXPECT_TRUE(watch.found()->within_step);
  stop::reset();
}

TEST(MemoryWatch, CountsAllRanksOfANode) {
  stop::reset();
  MemoryWatch watch{Device{}};
  const std::int64_t all = host_memory().with_swap;
  Plan plan = plan_of(gib / 1024);
  plan.ranks = 3;
  plan.node = {0, 1, 0};
  plan.memory.ranks.resize(3);
  plan.memory.ranks[1].denoise.working = 2 * all;  // on another host
  watch.look(Stage::denoise, plan, 0);
  EXPECT_FALSE(stop::leaving());
  plan.memory.ranks[2].denoise.working = 2 * all;
  watch.look(Stage::denoise, plan, 0);
  EXPECT_TRUE(stop::leaving()) << "ranks of a node share its memory";
  stop::reset();
}

TEST(MemoryWatch, TellsWhatItHasMeasured) {
  MemoryWatch watch{Device{}};
  Plan plan = plan_of(gib / 1024);
  watch.look(Stage::denoise, plan, 0);
  EXPECT_GT(measured_memory.used, 1 << 20);
  EXPECT_EQ(measured_memory.limit, host_memory().with_swap);
  EXPECT_GE(measured_memory.others, 0);
  EXPECT_LE(measured_memory.used + measured_memory.others, host_memory().with_swap);
  plan.memory.limits = {gib};
  watch.look(Stage::denoise, plan, 0);
  EXPECT_EQ(measured_memory.limit, gib);
}

TEST(MemoryWatch, KnowsEachStage) {
  MemoryPlan memory;
  memory.program = 1;
  memory.ranks.resize(1);
  RankMemory& rank = memory.ranks[0];
  rank.text.weights = 10;
  rank.encode.weights = 200;
  rank.encode.working = 1;
  rank.denoise.working = 3000;
  rank.decode.working = 40000;
  EXPECT_EQ(planned_bytes(Stage::text, memory, 0), memory.text(0));
  EXPECT_EQ(planned_bytes(Stage::input, memory, 0), memory.encode(0));
  EXPECT_EQ(planned_bytes(Stage::denoise, memory, 0), memory.denoise(0));
  EXPECT_EQ(planned_bytes(Stage::decode, memory, 0), memory.decode(0));
}

}  // namespace
}  // namespace reelmesh::pipeline
