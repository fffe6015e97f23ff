// Plans of whole jobs for the tiny checkpoints of tests/data.
#include "forecast/plan_job.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "forecast/describe.hpp"
#include "forecast/job_workload.hpp"
#include "forecast/prediction.hpp"
#include "plan/describe.hpp"
#include "support/constant_machine.hpp"
#include "support/model_job.hpp"

namespace reelmesh {
namespace {

std::int64_t of_all_ranks(const Plan& plan) {
  std::int64_t sum = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) sum += plan.memory.peak(rank);
  return sum;
}

// Without limits of the user, ranks that do not fit their node together keep fewer weights.
TEST(JobPlan, FitsTheMemoryOfANode) {
  const Job job = test::model_job();
  for (const int ranks : {1, 2, 4}) {
    Conditions conditions = plan_conditions(job, ranks, 1, std::vector<int>(std::size_t(ranks), 0),
                                            DType::float32, false);
    const Plan free = plan_job(job, conditions).plan;
    EXPECT_TRUE(free.memory.limits.empty());
    EXPECT_FALSE(free.memory.unloads_decoder);

    conditions.node_bytes = of_all_ranks(free);
    EXPECT_TRUE(plan_job(job, conditions).plan.memory.limits.empty()) << "it fits";
    conditions.node_bytes -= 1 << 20;
    const Plan tight = plan_job(job, conditions).plan;
    EXPECT_TRUE(tight.memory.fits()) << ranks << "\n" << plan_text(describe(tight.memory));
    EXPECT_LE(of_all_ranks(tight), conditions.node_bytes);

    // The user's limits win.
    conditions.machine.memory_limits.values.assign(std::size_t(ranks), std::int64_t{1} << 40);
    EXPECT_FALSE(plan_job(job, conditions).plan.memory.unloads_decoder);
  }
}

// Attention has as many messages in a dry run as in the job.
TEST(JobPlan, KnowsTheGpusOfItsRanks) {
  Job job = test::model_job();
  MachineTimes machine = test::constant_machine(1e9);
  machine.on_gpu = true;
  machine.multiprocessors = 108;
  job.machine = std::make_shared<const MachineTimes>(machine);
  const auto gpus = [&] {
    const Conditions conditions = plan_conditions(job, 5, 1, {0, 0, 1, 1, 1}, job.dtype, true);
    return job_precision(job, conditions).gpus;
  };
  EXPECT_EQ(gpus().multiprocessors, 108);
  EXPECT_EQ(gpus().of_node, 3);
  job.machine = nullptr;
  EXPECT_EQ(gpus().multiprocessors, GpuRanks{}.multiprocessors);
}

// A job may have a million clips.
TEST(JobPlan, KeepsLittleOfEachClip) {
  Job job = test::model_job();
  constexpr int count = 20'000;
  job.clips.resize(count, job.clips.front());
  for (ClipRequest& request : job.clips) request.prompt = std::string(60, 'a');
  job.clips.back().settings.guidance = 1;
  const JobPlan planned = plan_job(job, plan_conditions(job, 2, 1, {0, 0}, DType::float32, false));
  ASSERT_EQ(planned.clips.size(), count);
  EXPECT_EQ(planned.kinds.size(), 2);
  EXPECT_GE(planned.clip_bytes, count * std::int64_t{sizeof(ClipRequest) + 60});
  EXPECT_LT(planned.clip_bytes, count * 1024);
  EXPECT_EQ(planned.plan.memory.program, program_bytes + planned.clip_bytes);
  const Clip first = planned.clip(job, planned.clips[0]),
             last = planned.clip(job, planned.clips.back());
  EXPECT_EQ(first.sampling.sampler, last.sampling.sampler) << "clips share their schedules";
  EXPECT_EQ(first.index(), 0);
  EXPECT_EQ(last.index(), count - 1);
  EXPECT_EQ(first.texts.size(), 2U);
  EXPECT_EQ(last.texts.size(), 1U);
  EXPECT_EQ(first.seed() + count - 1, last.seed());
  // The first clip does not wait for all prompts.
  EXPECT_LT(planned.plan.embedding_bytes,
            count * planned.embedding_bytes(planned.clips[0], job.dtype));
}

// A job that is run again may have fewer batches than its tail, or none.
TEST(JobPlan, HasTimesForAnyPartOfItsBatches) {
  const auto machine =
      std::make_shared<const MachineTimes>(test::constant_machine(1e9, Link{1e-6, 1e9, 0}));
  int tails = 0;
  for (const auto& times : {machine, std::shared_ptr<const MachineTimes>()}) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (const int clips : {1, 3, 6, 7}) {
        SCOPED_TRACE(fmt::format("{} clips on {} ranks", clips, ranks));
        Job job = test::model_job(clips);
        job.machine = times;
        const JobPlan planned =
            plan_job(job, plan_conditions(job, ranks, 1, std::vector<int>(std::size_t(ranks), 0),
                                          DType::float32, false));
        tails += planned.tail ? 1 : 0;
        const std::vector<BatchOutline> all = form_batches(planned.clips, planned.kinds, 1);
        for (std::size_t left = 0; left <= all.size(); ++left) {
          const std::vector<BatchOutline> batches(all.begin(),
                                                  all.begin() + static_cast<std::ptrdiff_t>(left));
          EXPECT_LE(planned.tail_of(left), left);
          const double seconds = simulate(planned, planned, batches).seconds;
          EXPECT_EQ(seconds > 0, left > 0);
          EXPECT_TRUE(std::isfinite(seconds));
          const auto prediction = predict(planned, batches);
          EXPECT_EQ(prediction.has_value(), times != nullptr);
          const nlohmann::json described = describe(planned, batches, prediction);
          EXPECT_EQ(described.contains("last_batches"), planned.tail_of(left) > 0);
        }
      }
    }
  }
  EXPECT_GT(tails, 2);
}

// 4K, 161 frames: 10 million latents in channels of their own.
TEST(JobPlan, OfVeryLargeClips) {
  for (const int ranks : {3}) {
    Job job = test::model_job();
    job.sample.frames = 161;
    job.sample.height = 2160;
    job.sample.width = 3840;
    job.machine =
        std::make_shared<const MachineTimes>(test::constant_machine(1e9, Link{1e-6, 1e9, 0}));
    const JobPlan planned =
        plan_job(job, plan_conditions(job, ranks, 1, std::vector<int>(std::size_t(ranks), 0),
                                      DType::float32, false));
    EXPECT_GT(numel(planned.plan.sizes.at(0).workload.latents), 1 << 22);
    EXPECT_GT(predict(planned, form_batches(planned.clips, planned.kinds, 1))->job, 0);
  }
}

}  // namespace
}  // namespace reelmesh
