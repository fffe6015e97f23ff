#include "forecast/simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "forecast/plan_job.hpp"
#include "forecast/prediction.hpp"
#include "support/constant_machine.hpp"
#include "support/expect_error.hpp"
#include "support/model_job.hpp"

namespace reelmesh {
namespace {

using test::constant_machine;
using test::unlimited;

constexpr int steps = 6;

// Clips of unlike lengths, on a machine where everything takes time.
Job unlike_clips(int clips) {
  MachineTimes machine = constant_machine(1e8);
  machine.start = 2;
  machine.write = 1e6;
  machine.touch = 1e9;
  machine.alone[DType::float32].load = 5e6;
  machine.alone[DType::float32].load_convolutions = 4e6;
  Job job = test::model_job(clips);
  job.sample.steps = steps;
  job.dtype = DType::float32;
  job.machine = std::make_shared<const MachineTimes>(machine);
  job.restart.every_seconds = 0;
  for (int i = 0; i < clips; ++i) job.clips[std::size_t(i)].settings.frames = i % 3 == 0 ? 13 : 5;
  return job;
}

JobPlan planned(const Job& job, int ranks) {
  return plan_job(job, plan_conditions(job, ranks, 1, std::vector<int>(std::size_t(ranks), 0),
                                       DType::float32, false));
}

double predicted(const Job& job, const JobPlan& plan) {
  return predict(plan, form_batches(plan.clips, plan.kinds, job.batch)).value().job;
}

Simulation played(const Job& job, const JobPlan& plan, const SimulatedFailures& failures = {},
                  std::int64_t max_spans = 1'000'000) {
  return simulate(plan, plan, form_batches(plan.clips, plan.kinds, job.batch), failures, max_spans);
}

// That no rank does two things at a time, and that spans are in order. → the number of spans of
// each name.
std::map<std::string_view, int> checked(const Simulation& simulation) {
  std::map<std::string_view, int> count;
  for (const auto& spans : simulation.spans) {
    std::int64_t end = 0;
    for (const trace::Span& span : spans) {
      EXPECT_GE(span.start_ns, end - 1) << span.name;  // of rounding
      EXPECT_GE(span.duration_ns, 0) << span.name;
      end = span.start_ns + span.duration_ns;
      ++count[span.name];
    }
    EXPECT_LE(end, std::llround(1e9 * simulation.seconds) + 1);
  }
  return count;
}

// The steps of each clip in the order in which they were computed, on the first rank that computed
// each.
std::map<int, std::vector<int>> steps_of_clips(const Simulation& simulation) {
  std::set<std::tuple<std::int64_t, int, int>> all;
  for (const auto& spans : simulation.spans) {
    for (const trace::Span& span : spans) {
      if (std::string_view(span.name) == "denoise_step") {
        all.emplace(span.start_ns, span.clip, span.step);
      }
    }
  }
  std::map<int, std::vector<int>> found;
  for (const auto& [start, clip, step] : all) found[clip].push_back(step);
  return found;
}

TEST(Simulation, EndsWhenPredicted) {
  for (const int ranks : {1, 2, 4}) {
    for (const int replicas : {1, 2, 4}) {
      if (ranks % replicas != 0) continue;
      Job job = unlike_clips(5);
      job.parallel.replicas = replicas;
      const JobPlan plan = planned(job, ranks);
      const Simulation simulation = played(job, plan);
      const double expected = predicted(job, plan);
      EXPECT_DOUBLE_EQ(simulation.seconds, expected)
          << ranks << " ranks, " << replicas << " replicas";
      const auto count = checked(simulation);
      const int of_replica = ranks / replicas;
      EXPECT_EQ(count.at("denoise_step"), 5 * steps * of_replica);
      EXPECT_EQ(count.at("decode"), 5 * of_replica);
      EXPECT_EQ(count.at("write"), 5 * of_replica);
      EXPECT_GE(count.at("encode"), 6);
      EXPECT_TRUE(simulation.failures.empty());
    }
  }
}

TEST(Simulation, LargerReplicasTakeOverTheLastClips) {
  const Job job = [] {
    Job same = unlike_clips(3);
    for (ClipRequest& clip : same.clips) clip.settings.frames = 13;
    return same;
  }();
  const JobPlan plan = planned(job, 2);
  ASSERT_TRUE(plan.tail.has_value()) << "3 clips on 2 ranks";
  const Simulation simulation = played(job, plan);
  EXPECT_DOUBLE_EQ(simulation.seconds, predicted(job, plan));
  std::map<int, std::set<std::size_t>> ranks;  // of each clip
  for (std::size_t rank = 0; rank < simulation.spans.size(); ++rank) {
    for (const trace::Span& span : simulation.spans[rank]) {
      if (std::string_view(span.name) == "denoise_step") ranks[span.clip].insert(rank);
    }
  }
  std::multiset<std::size_t> sizes;
  for (const auto& [clip, of] : ranks) sizes.insert(of.size());
  EXPECT_EQ(sizes, (std::multiset<std::size_t>{1, 1, 2}));
}

TEST(Simulation, SplitStagesWorkSideBySide) {
  Job job = unlike_clips(6);
  job.parallel.mode = Mode::split;
  job.parallel.replicas = 2;
  const JobPlan plan = planned(job, 4);
  const Simulation simulation = played(job, plan);
  const auto count = checked(simulation);
  EXPECT_EQ(count.at("denoise_step"), 6 * steps);
  EXPECT_EQ(count.at("decode"), 6);
  const Roles& roles = plan.plan.roles;
  const auto names = [&](int rank) {
    std::set<std::string_view> found;
    for (const trace::Span& span : simulation.spans[std::size_t(rank)]) found.insert(span.name);
    return found;
  };
  using Names = std::set<std::string_view>;
  EXPECT_EQ(names(roles.text.first), (Names{"prepare", "load", "encode"}));
  EXPECT_EQ(names(roles.denoise[1].first), (Names{"prepare", "load", "denoise_step"}));
  EXPECT_EQ(names(roles.decode[0].first), (Names{"prepare", "load", "decode", "write"}));
  double one_after_the_other = 0;
  for (const int rank : {roles.text.first, roles.denoise[1].first, roles.decode[0].first}) {
    for (const trace::Span& span : simulation.spans[std::size_t(rank)]) {
      if (span.name == trace::spans::prepare.name) continue;
      one_after_the_other += 1e-9 * static_cast<double>(span.duration_ns);
    }
  }
  EXPECT_LT(simulation.seconds, one_after_the_other);
  EXPECT_DOUBLE_EQ(simulation.seconds, predicted(job, plan));
}

TEST(Simulation, AJobThatFailsGoesOnFromWhatIsSaved) {
  Job job = unlike_clips(8);
  job.restart.every_steps = 2;
  const JobPlan plan = planned(job, 2);
  const Simulation undisturbed = played(job, plan);
  const SimulatedFailures often{.every = undisturbed.seconds / 2, .pause = 5};
  const Simulation simulation = played(job, plan, often);
  ASSERT_GE(simulation.failures.size(), 2U);
  const auto count = checked(simulation);
  EXPECT_GT(count.at("save"), 0);
  EXPECT_GE(simulation.seconds,
            undisturbed.seconds + 5 * static_cast<double>(simulation.failures.size()));
  for (const SimulatedFailure& failure : simulation.failures) {
    EXPECT_GE(failure.rank, 0);
    EXPECT_LT(failure.rank, 2);
    for (const auto& spans : simulation.spans) {
      for (const trace::Span& span : spans) {
        const auto time = std::llround(1e9 * failure.time);
        EXPECT_FALSE(span.start_ns < time && span.start_ns + span.duration_ns > time + 1)
            << "nothing goes on over a failure";
        EXPECT_FALSE(span.start_ns > time && span.start_ns < time + 4'999'999'999)
            << "nothing starts in the pause";
      }
    }
  }
  bool repeated = false;
  for (const auto& [clip, done] : steps_of_clips(simulation)) {
    for (std::size_t i = 1; i < done.size(); ++i) {
      const bool back = done[i] != done[i - 1] + 1;
      repeated = repeated || back;
      if (!back) continue;
      EXPECT_LE(done[i], done[i - 1]) << "steps are repeated, none is left out";
      EXPECT_EQ(done[i] % 2, 0) << "from a saved one on";
      EXPECT_LE(done[i - 1] - done[i], 2);
    }
    EXPECT_EQ(done.back(), steps - 1);
  }
  EXPECT_TRUE(repeated);
  const Simulation again = played(job, plan, often);
  EXPECT_EQ(again.seconds, simulation.seconds) << "the same failures each time";
  // With nothing saved within clips, more is lost.
  job.restart.every_steps = 0;
  EXPECT_GT(played(job, plan, often).seconds, undisturbed.seconds);
}

TEST(Simulation, FailuresThatLeaveNoTimeAreRefused) {
  const Job job = unlike_clips(2);
  const JobPlan plan = planned(job, 1);
  test::expect_error(
      Status::unavailable, [&] { played(job, plan, {.every = 1e-3, .pause = 0}); }, "--mtbf",
      "2 of 2 clips");
}

TEST(Simulation, ManyStepsAreOneSpanForEachBatch) {
  const Job job = unlike_clips(4);
  const JobPlan plan = planned(job, 1);
  const Simulation each = played(job, plan), whole = played(job, plan, {}, 10);
  EXPECT_FALSE(each.whole_batches);
  EXPECT_TRUE(whole.whole_batches);
  EXPECT_DOUBLE_EQ(whole.seconds, each.seconds);
  const auto count = checked(whole);
  EXPECT_EQ(count.at("denoise_steps"), 4);
  EXPECT_FALSE(count.contains("denoise_step"));
}

TEST(Simulation, TheTextEncoderIsLoadedAgainIfTheQueueIsShort) {
  const Job job = unlike_clips(3);
  JobPlan plan = planned(job, 1);
  const auto loads = [&] { return checked(played(job, plan)).at("load"); };
  EXPECT_EQ(loads(), 3) << "text encoder, transformer, decoder";
  plan.plan.queue_bytes = 1;
  EXPECT_EQ(loads(), 9);
}

TEST(Simulation, StagesThatDoNotFitTogetherAreLoadedInTurn) {
  const Job job = unlike_clips(3);
  JobPlan plan = planned(job, 1);
  plan.plan.memory.unloads_decoder = true;
  EXPECT_EQ(checked(played(job, plan)).at("load"), 1 + 1 + 3);
  plan.plan.memory.offloads = true;
  EXPECT_EQ(checked(played(job, plan)).at("load"), 1 + 3 + 3);
  Job on_two = unlike_clips(4);
  on_two.parallel.replicas = 2;
  plan = planned(on_two, 2);
  const auto with_text = checked(played(on_two, plan)).at("load") - 2 * 2;
  plan.plan.memory.offloads = true;
  EXPECT_EQ(checked(played(on_two, plan)).at("load"), with_text + 4 + 4);
}

}  // namespace
}  // namespace reelmesh
