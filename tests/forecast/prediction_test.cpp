#include "forecast/prediction.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "models/reference.hpp"
#include "plan/decode.hpp"
#include "support/constant_machine.hpp"
#include "support/dry_workloads.hpp"
#include "support/expect_error.hpp"
#include "support/model_job.hpp"

namespace reelmesh {
namespace {

using test::constant_machine;
using test::unlimited;

// Counts FLOPs or bytes as seconds.
class Counting final : public TimeModel {
 public:
  Counting(double of_flops, double of_bytes) : of_flops_(of_flops), of_bytes_(of_bytes) {}
  double operation(std::string_view, DType, std::int64_t flops, std::int64_t bytes) const override {
    return of_flops_ * static_cast<double>(flops) + of_bytes_ * static_cast<double>(bytes);
  }
  double exchange(int, std::span<const Transfer>) const override { return 0; }
  double exchange_share(int, std::span<const Transfer>) const override { return 0; }

 private:
  double of_flops_, of_bytes_;
};

// What the stages take on rank 1 of 3, in the order step, decode, text.
std::vector<double> stage_seconds(const std::shared_ptr<const TimeModel>& times, double* flops) {
  const test::Reference reference("rotary");
  const CogVideoXConfig& config = reference.transformer;
  static const Family& family =
      *test::family_of<CogVideoX>(test::cogvideox_folder(config, reference.vae, reference.t5));
  const Shape tokens = config.sample_tokens();
  const Clip clip = test::cogvideox_clip(
      config, {3, config.patch.rows * tokens[1], config.patch.columns * tokens[2]}, 2,
      config.max_text_tokens);
  const auto runs = DryRuns::of(family, {}, {}, false, {times, times});
  const TextWorkload text = runs->text_workload(clip.tokens());
  ClipWorkload workload = family.workload(clip, clip.tokens());
  runs->complete(workload, clip, 1);
  // Not the fastest, which depends on the machine.
  const DenoiseLayout layout =
      choose_layout(workload.denoise, {.mesh = {.ring = 1}, .shard = Shard::height, .ranks = 3})
          .layout();
  const StepCost step = runs->denoise(0, layout, 1, {}).step;
  *flops = step.flops;
  return {step.time.total(), runs->decode(0, decode_layout(workload.decode, 3), 1).time.total(),
          runs->text({0, 0, text.layers, true, true}).time.total()};
}

TEST(Prediction, StagesTakeTheirOperationsByTheRate) {
  constexpr double rate = 1e9;
  double flops = 0;
  const auto by_flops = stage_seconds(std::make_shared<const Counting>(1, 0), &flops);
  EXPECT_GT(flops, 1e6);
  EXPECT_DOUBLE_EQ(by_flops[0], flops) << "all layers, and what is beside them";
  const auto by_bytes = stage_seconds(std::make_shared<const Counting>(0, 1), &flops);
  const auto machine = std::make_shared<const MachineTimes>(constant_machine(rate));
  const auto predicted = stage_seconds(time_model(machine, {.of_node = 3}), &flops);
  for (std::size_t stage = 0; stage < predicted.size(); ++stage) {
    const double expected = (by_flops[stage] + 16 * by_bytes[stage]) / rate;
    EXPECT_GT(by_bytes[stage], 0);
    EXPECT_NEAR(predicted[stage], expected, 1e-3 * expected) << stage;
  }
}

Job some_job(int clips, const MachineTimes& machine) {
  Job job = test::model_job(clips);
  job.sample.steps = 5;
  job.dtype = DType::float32;
  job.machine = std::make_shared<const MachineTimes>(machine);
  return job;
}

JobPlan planned(const Job& job, std::vector<int> node_of) {
  const auto ranks = static_cast<int>(node_of.size());
  return plan_job(job, plan_conditions(job, ranks, 1, std::move(node_of), DType::float32, false));
}

Prediction predicted(const Job& job, const std::vector<int>& node_of) {
  const JobPlan plan = planned(job, node_of);
  return predict(plan, form_batches(plan.clips, plan.kinds, job.batch)).value();
}

TEST(Prediction, JobIsTheSumOfItsParts) {
  MachineTimes machine = constant_machine(1e8);
  machine.start = 3;
  machine.write = 1e6;
  const Job job = some_job(1, machine);
  const Prediction p = predicted(job, {0});
  ASSERT_EQ(p.sizes.size(), 1U);
  const SizePrediction& of = p.sizes[0];
  EXPECT_GT(of.step.computation, 0);
  EXPECT_GT(of.step.memory, 0);
  EXPECT_EQ(of.step.network, 0) << "one rank sends nothing";
  EXPECT_GT(of.decode, 0);
  EXPECT_EQ(of.input, 0);
  EXPECT_NEAR(p.encode, 2 * of.encode, 1e-9) << "prompt and negative prompt";
  const double writing = 3.0 * 13 * 112 * 48 / 1e6;
  EXPECT_NEAR(p.make, 5 * of.step.total() + of.decode + writing, 1e-9 * p.make);
  EXPECT_DOUBLE_EQ(p.job, 3 + p.load + p.encode + p.make);
  EXPECT_LT(p.load, 1e-6);
  EXPECT_LT(p.low, p.job);
  EXPECT_GT(p.high, p.job);
  EXPECT_FALSE(p.measured);
  machine.measured = true;
  const Prediction measured = predicted(some_job(1, machine), {0});
  EXPECT_GT(measured.low, p.low) << "measured times are nearer";
  EXPECT_LT(measured.high, p.high);
}

TEST(Prediction, MeasuredStepsTakeThePlaceOfThoseOfTheMachine) {
  JobPlan plan = planned(some_job(2, constant_machine(1e8)), {0, 0, 0});
  const auto batches = form_batches(plan.clips, plan.kinds, 1);
  const Prediction before = predict(plan, batches).value();
  plan.predicted_by.measured_step = 3;
  const Prediction after = predict(plan, batches).value();
  const double step = before.sizes[0].step.total();
  EXPECT_NEAR(after.sizes[0].step.total(), 3 * step, 1e-9 * step);
  EXPECT_NEAR(after.make - before.make, 2.0 * 2 * 5 * step, 1e-9 * before.make)
      << "one replica makes both clips";
  EXPECT_EQ(after.sizes[0].decode, before.sizes[0].decode);
  EXPECT_EQ(after.load, before.load);
}

TEST(Prediction, TextTakesTheMedianOfTheRanksThatHaveLayers) {
  JobPlan plan = planned(some_job(1, constant_machine(1e8)), {0, 0, 0, 0});
  const auto encode_of = [&](std::initializer_list<double> seconds) {
    plan.plan.text_time.clear();
    for (const double rank : seconds) plan.plan.text_time.push_back({.computation = rank});
    const auto batches = form_batches(plan.clips, plan.kinds, 1);
    return predict(plan, batches).value().sizes.at(0).encode;
  };
  EXPECT_EQ(encode_of({4, 1, 0, 0}), 2.5);
  EXPECT_EQ(encode_of({4, 0, 1, 3}), 3);
  EXPECT_EQ(encode_of({0, 0, 0, 0}), 0);
}

TEST(Prediction, LoadingReadsAndPacksAndTouches) {
  MachineTimes machine = constant_machine(unlimited);
  machine.alone[DType::float32].load = 1e6;
  const JobPlan plan = planned(some_job(1, machine), {0});
  const RankMemory& memory = plan.plan.memory.ranks.at(0);
  const double linear = double(memory.text.weights + memory.denoise.weights) / 1e6;
  const Prediction p = predicted(some_job(1, machine), {0});
  EXPECT_NEAR(p.load, linear, 1e-6 * linear);
  machine.alone[DType::float32].load_convolutions = 1e5;
  const double convolutions = double(memory.decode.weights) / 1e5;
  EXPECT_NEAR(predicted(some_job(1, machine), {0}).load, linear + convolutions, 1e-6 * linear);
  machine.touch = 1e4;
  const double touched = double(plan.plan.memory.peak(0) - plan.plan.memory.program) / 1e4;
  EXPECT_NEAR(predicted(some_job(1, machine), {0}).load, linear + convolutions + touched,
              1e-6 * touched);
}

TEST(Prediction, TwoReplicasMakeTwoClipsInHalfTheTime) {
  Job job = some_job(2, constant_machine(1e8));
  job.parallel.replicas = 1;
  const Prediction one = predicted(job, {0});
  job.parallel.replicas = 2;
  const Prediction two = predicted(job, {0, 0});
  EXPECT_GT(one.make, 0);
  EXPECT_NEAR(two.make, one.make / 2, 1e-9 * one.make);
  EXPECT_NEAR(two.idle, 0, 1e-9);
  // Three texts pass through all ranks.
  const std::vector<Elapsed> text = planned(job, {0, 0}).plan.text_time;
  const double first = text.at(0).total(), second = text.at(1).total();
  EXPECT_GT(std::min(first, second), 0);
  EXPECT_NEAR(two.encode, first + second + 2 * std::max(first, second), 1e-9 * one.encode);
  EXPECT_NEAR(one.encode, 3 * one.sizes[0].encode, 1e-9 * one.encode);
}

TEST(Prediction, MessagesTakeTimeThatTheirRanksWait) {
  Job fast = some_job(1, constant_machine(1e8));
  Job slow = some_job(1, constant_machine(1e8, Link{0.5, unlimited, 1}));
  fast.parallel.cfg = slow.parallel.cfg = 2;
  const SizePrediction without = predicted(fast, {0, 0}).sizes.at(0);
  const SizePrediction with = predicted(slow, {0, 0}).sizes.at(0);
  EXPECT_LT(without.step.network, 1e-9);
  EXPECT_GE(with.step.network, 0.5) << "a step has a message or more";
  EXPECT_NEAR(with.step.computation, without.step.computation, 1e-12);
  const double messages = with.step.network / 0.5;
  EXPECT_NEAR(messages, std::round(messages), 1e-6);
}

// Also if the ranks could compute while messages are in transit.
TEST(Prediction, LinksThatAreNeededMustBeKnown) {
  for (const double share : {0.0, 1.0}) {
    MachineTimes machine = constant_machine(1e8, Link{0, unlimited, share});
    for (const int clips : {1, 2, 3}) {
      Job job = some_job(clips, machine);
      job.parallel.replicas = 1;
      EXPECT_GT(predicted(job, {0, 0}).job, 0);
      test::expect_error(
          Status::data,
          [&] {
            predicted(job, {0, 1});
          },
          "node.cfg", "link.network");
      job.parallel.replicas = 2;
      if (clips == 2) {
        EXPECT_GT(predicted(job, {0, 1}).job, 0) << "replicas send no messages";
      }
      machine.node.reset();
      Job without = some_job(clips, machine);
      without.parallel.replicas = 1;
      test::expect_error(
          Status::data,
          [&] {
            predicted(without, {0, 0});
          },
          "node.cfg", "link.node");
      machine.node = Link{0, unlimited, share};
    }
  }
}

TEST(Prediction, WeightsOnTheHostNeedItsLink) {
  MachineTimes machine = constant_machine(1e8);
  Job job = some_job(1, machine);
  job.parallel.weights = WeightsChoice::host;
  test::expect_error(
      Status::data, [&] { predicted(job, {0}); }, "node.cfg", "link.host");
  const double kept = predicted(some_job(1, machine), {0}).sizes.at(0).step.total();
  machine.host_memory = Link{0, 1e3, 0};
  job.machine = std::make_shared<const MachineTimes>(machine);
  const auto fetched = double(planned(job, {0}).plan.weights.fetched);
  EXPECT_GT(fetched / 1e3, kept);
  EXPECT_NEAR(predicted(job, {0}).sizes.at(0).step.total(), fetched / 1e3, 1e-9 * fetched);
}

TEST(Prediction, MissingOperationsAreNamed) {
  MachineTimes machine = constant_machine(1e8);
  machine.alone[DType::float32].operations.erase("convolution");
  test::expect_error(
      Status::data, [&] { predicted(some_job(1, machine), {0}); }, "node.cfg", "convolution");
  Job job = some_job(1, constant_machine(1e8));
  job.dtype = DType::bfloat16;
  test::expect_error(
      Status::data, [&] { predicted(job, {0}); }, "node.cfg", "[bfloat16]");
}

// Sizes that are smaller than others are not run.
TEST(Prediction, SizesThatAreNotRunAreInProportion) {
  constexpr int sizes = 10;
  Job job = some_job(sizes, constant_machine(1e8));
  for (int i = 0; i < sizes; ++i) job.clips[std::size_t(i)].settings.frames = 5 + 4 * i;
  const Prediction p = predicted(job, {0});
  ASSERT_EQ(p.sizes.size(), std::size_t(sizes));
  for (std::size_t i = 0; i < p.sizes.size(); ++i) {
    Job alone = some_job(1, constant_machine(1e8));
    alone.clips[0].settings.frames = job.clips[i].settings.frames;
    const SizePrediction run = predicted(alone, {0}).sizes.at(0);
    EXPECT_NEAR(p.sizes[i].step.total(), run.step.total(), 0.25 * run.step.total()) << i;
    EXPECT_NEAR(p.sizes[i].decode, run.decode, 0.25 * run.decode) << i;
  }
  double sum = 0;
  for (const SizePrediction& size : p.sizes) sum += 5 * size.step.total() + size.decode;
  EXPECT_NEAR(p.make, sum, 1e-6 * sum);
}

TEST(Prediction, NoneWithoutAMachine) {
  Job job = some_job(1, {});
  job.machine = nullptr;
  const JobPlan plan = planned(job, {0});
  EXPECT_FALSE(predict(plan, form_batches(plan.clips, plan.kinds, job.batch)).has_value());
}

TEST(Prediction, IsDescribed) {
  const Job job = some_job(1, constant_machine(1e8));
  const JobPlan plan = planned(job, {0});
  const Prediction p = predict(plan, form_batches(plan.clips, plan.kinds, job.batch)).value();
  const nlohmann::json described = describe(p, plan);
  EXPECT_EQ(described.at("machine"), "a node");
  EXPECT_EQ(described.at("measured"), false);
  EXPECT_EQ(described.at("job_seconds"), p.job);
  EXPECT_EQ(described.at("load_seconds"), p.load);
  EXPECT_EQ(described.at("make_seconds"), p.make);
  const nlohmann::json& size = described.at("sizes").at(0);
  EXPECT_EQ(size.at("size"), "13x112x48");
  EXPECT_EQ(size.at("step_seconds"), p.sizes[0].step.total());
  double parts = 0;
  for (const auto& part : size.at("step_parts")) parts += part.get<double>();
  EXPECT_NEAR(parts, p.sizes[0].step.total(), 1e-12);
  EXPECT_EQ(size.at("decode_seconds"), p.sizes[0].decode);
}

}  // namespace
}  // namespace reelmesh
