// Layouts that are chosen and compared by their predicted times.
#include "forecast/comparison.hpp"

#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"
#include "support/constant_machine.hpp"
#include "support/model_job.hpp"

namespace reelmesh {
namespace {

using test::model_job;

std::shared_ptr<const MachineTimes> machine(const Link& link) {
  return std::make_shared<const MachineTimes>(test::constant_machine(1e9, link));
}

Conditions conditions(const Job& job, int ranks) {
  return plan_conditions(job, ranks, 1, std::vector<int>(static_cast<std::size_t>(ranks), 0),
                         DType::float32, false);
}

std::vector<ComparedPlan> compared(const Job& job, int ranks) {
  const Conditions there = conditions(job, ranks);
  JobPlan planned = plan_job(job, there);
  return compare_plans(planned, job, there, planned.clips);
}

const Link fast{0, 1e15, 0}, slow{10, 1e9, 0};

TEST(Comparison, TheFastestIsFirstAndNoneIsTwice) {
  Job job = model_job(1);
  job.machine = machine(fast);
  const std::vector<ComparedPlan> plans = compared(job, 4);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    EXPECT_TRUE(seen.insert(plans[i].layout + plans[i].cut + plans[i].weights).second)
        << plans[i].layout;
    EXPECT_GT(plans[i].prediction.job, 0);
    EXPECT_GT(plans[i].memory, 0);
    EXPECT_GE(plans[i].prediction.job, plans[0].prediction.job) << "that of auto";
    if (i < 2) continue;
    EXPECT_GE(plans[i].prediction.job, plans[i - 1].prediction.job);
  }
  for (const char* layout :
       {"ring 4", "ulysses 4", "ring 2 x ulysses 2", "cfg 2 x ring 2", "cfg 2 x ulysses 2"}) {
    const bool found = std::ranges::any_of(plans, [&](const ComparedPlan& plan) {
      return plan.layout == layout && plan.weights == "replicated";
    });
    EXPECT_TRUE(found) << layout;
  }
}

// Messages of ten seconds: replicas send nothing, even if one of them has no clip.
TEST(Comparison, SlowLinksAreAvoided) {
  Job job = model_job(1);
  job.machine = machine(slow);
  EXPECT_EQ(compared(job, 2).front().layout, "2 replicas of 1 rank");
  job = model_job(4);
  job.machine = machine(slow);
  EXPECT_EQ(compared(job, 4).front().layout, "4 replicas of 1 rank");
  // `run` chooses the same, also without the comparison.
  const JobPlan planned = plan_job(job, conditions(job, 4));
  EXPECT_EQ(planned.plan.roles.denoise.size(), 4U);
}

TEST(Comparison, TheChosenLayoutIsTheFastest) {
  for (const Link& link : {fast, Link{1e-4, 1e8, 0.5}}) {
    for (const int ranks : {1, 2, 3, 4, 6}) {
      Job job = model_job(1);
      job.machine = machine(link);
      const JobPlan chosen = plan_job(job, conditions(job, ranks));
      const double auto_step = in_short(chosen, form_batches(chosen.clips, chosen.kinds, 1))
                                   .prediction.sizes.front()
                                   .step.total();
      double best = auto_step;
      for (const ComparedPlan& plan : compared(job, ranks)) {
        if (plan.request.mode == Mode::phased && plan.weights == "replicated") {
          best = std::min(best, plan.prediction.sizes.front().step.total());
        }
      }
      EXPECT_LE(auto_step, 1.001 * best) << ranks << " ranks";
    }
  }
}

TEST(Comparison, OptionsThatAreGivenStay) {
  Job job = model_job(2);
  job.machine = machine(fast);
  job.parallel.ring = 2;
  job.parallel.mode = Mode::phased;
  for (const ComparedPlan& plan : compared(job, 4)) {
    EXPECT_EQ(plan.request.ring, 2) << plan.layout;
    EXPECT_EQ(plan.request.mode, Mode::phased) << plan.layout;
  }
}

// Three clips of four are complete.
TEST(Comparison, IsOfTheClipsThatAreLeft) {
  Job job = model_job(4);
  job.machine = machine(fast);
  const Conditions there = conditions(job, 4);
  JobPlan planned = plan_job(job, there);
  const std::vector<ClipOutline> last{planned.clips.back()};
  EXPECT_EQ(compare_plans(planned, job, there, planned.clips).front().layout,
            "4 replicas of 1 rank");
  EXPECT_EQ(compare_plans(planned, job, there, last).front().request.replicas, 1);
}

TEST(Comparison, NeedsAMachine) {
  try {
    compared(model_job(1), 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::usage);
    EXPECT_NE(std::string(error.what()).find("device.machine is missing"), std::string::npos);
  }
}

TEST(Comparison, TablesHaveARowForEachPlan) {
  Job job = model_job(1);
  job.machine = machine(fast);
  const std::vector<ComparedPlan> plans = compared(job, 2);
  const std::string table = comparison_text(plans, false);
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(table, '\n')), plans.size() + 2);
  EXPECT_EQ(table.find("efficiency"), std::string::npos);
  EXPECT_NE(comparison_text(plans, true).find("efficiency"), std::string::npos);
}

}  // namespace
}  // namespace reelmesh
