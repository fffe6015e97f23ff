// Plans of whole jobs for the tiny checkpoints of tests/data.
#include "pipeline/job_plan.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "models/reference.hpp"

namespace reelmesh::pipeline {
namespace {

Job job_of(const std::filesystem::path& root) {
  Job job;
  job.model = {.root = root,
               .transformer = root / "transformer",
               .vae = root / "vae",
               .text_encoder = root / "text_encoder",
               .tokenizer = root / "tokenizer",
               .scheduler = root / "scheduler"};
  job.clips.resize(1);
  job.clips.front().prompt = "rain";
  job.height = 112;
  job.width = 48;
  job.frames = 13;
  return job;
}

std::int64_t of_all_ranks(const Plan& plan) {
  std::int64_t sum = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) sum += plan.memory.peak(rank);
  return sum;
}

// Without limits of the user, ranks that do not fit their node together keep fewer weights.
TEST(JobPlan, FitsTheMemoryOfANode) {
  const Job job = job_of(test::data_folder() / "cogvideox" / "rotary");
  for (const int ranks : {1, 2, 4}) {
    Conditions conditions = conditions_of(job, ranks, 1, std::vector<int>(std::size_t(ranks), 0),
                                          DType::float32, false);
    const Plan free = plan_job(job, conditions).plan;
    EXPECT_TRUE(free.memory.limits.empty());
    EXPECT_FALSE(free.memory.unloads_decoder);

    conditions.node_bytes = of_all_ranks(free);
    EXPECT_TRUE(plan_job(job, conditions).plan.memory.limits.empty()) << "it fits";
    conditions.node_bytes -= 1 << 20;
    const Plan tight = plan_job(job, conditions).plan;
    EXPECT_TRUE(tight.memory.fits()) << ranks << "\n" << describe(tight.memory);
    EXPECT_LE(of_all_ranks(tight), conditions.node_bytes);

    // The user's limits win.
    conditions.machine.memory_limits.values.assign(std::size_t(ranks), std::int64_t{1} << 40);
    EXPECT_FALSE(plan_job(job, conditions).plan.memory.unloads_decoder);
  }
}

}  // namespace
}  // namespace reelmesh::pipeline
