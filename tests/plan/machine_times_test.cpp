#include "plan/machine_times.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "plan/fit.hpp"
#include "plan/step_time.hpp"
#include "support/expect_error.hpp"
#include "tensor/ledger.hpp"
#include "workloads.hpp"

namespace reelmesh {
namespace {

using test::expect_error;

constexpr DType f32 = DType::float32;

// Products of two sizes with the same number of operations per byte, one with few, and copies.
DTypeTimes some_times(double factor = 1) {
  DTypeTimes times;
  times.operations["product"] = {{1e9, 1e6, factor * 0.1}, {16e9, 16e6, factor * 0.8}};
  times.operations["copy"] = {{0, 1e8, factor * 0.01}};
  times.load = 1e9 / factor;
  times.load_convolutions = 2e8 / factor;
  return times;
}

MachineTimes some_machine() {
  MachineTimes machine;
  machine.file = "node.cfg";
  machine.cores = 8;
  machine.threads = 2;
  machine.together = 4;
  machine.crowded = 1.5;
  machine.node = Link{1e-3, 1e6, 0.25};
  machine.network = Link{2e-3, 1e5, 0};
  machine.alone[f32] = some_times();
  return machine;
}

// Of an operation with a thousand times as many FLOPs as bytes.
double product(const MachineTimes& machine, double flops, int busy = 1, int threads = 2) {
  return machine.operation("product", f32, flops, flops / 1000, busy, threads);
}

TEST(MachineTimes, KnownOperationsTakeTheirSeconds) {
  const MachineTimes machine = some_machine();
  EXPECT_NEAR(product(machine, 1e9), 0.1, 1e-5);
  EXPECT_NEAR(product(machine, 16e9), 0.8, 1e-4);
  EXPECT_NEAR(machine.operation("copy", f32, 0, 1e8, 1, 2), 0.01, 1e-9);
  EXPECT_EQ(machine.operation("copy", f32, 0, 0, 1, 2), 0);
}

TEST(MachineTimes, OthersLieOnLinesBetweenTheKnown) {
  const MachineTimes machine = some_machine();
  EXPECT_NEAR(product(machine, 4e9), 0.1 + 0.7 * 3 / 15, 1e-9);
  EXPECT_NEAR(product(machine, 1e3), 0.1 - 0.7 / 15, 1e-6) << "the latency";
  EXPECT_NEAR(product(machine, 32e9), 1.6, 1e-9) << "in proportion above the largest";
  // One known operation: in proportion to its size.
  EXPECT_NEAR(machine.operation("copy", f32, 0, 5e9, 1, 2), 0.5, 1e-9);
  EXPECT_NEAR(machine.operation("copy", f32, 0, 1e6, 1, 2), 1e-4, 1e-12);
}

TEST(MachineTimes, FlopsAndBytesCountAsTheKnownTimesTell) {
  MachineTimes machine = some_machine();
  // 1 TFLOP/s and 10 GB/s: a byte counts as 100 operations.
  std::vector<TimedOperation> known;
  for (const auto& [flops, bytes] : {std::pair{1e9, 1e6}, {4e9, 1e8}, {1e9, 2e8}, {6e10, 1e7}}) {
    known.push_back({flops, bytes, flops / 1e12 + bytes / 1e10});
  }
  machine.alone[f32].operations["product"] = known;
  for (const auto& [flops, bytes] : {std::pair{2e9, 3e7}, {1e10, 1e7}, {1e8, 1e8}}) {
    const double expected = flops / 1e12 + bytes / 1e10;
    EXPECT_NEAR(machine.operation("product", f32, flops, bytes, 1, 2), expected, 0.15 * expected);
  }
}

TEST(MachineTimes, TimesThatFallArePooled) {
  const KnownOperations noisy{{0, 1e6, 2e-3}, {0, 2e6, 1e-3}, {0, 1e8, 1e-1}};
  EXPECT_NEAR(noisy.seconds(0, std::sqrt(2e12)), std::sqrt(2e-6), 1e-9);
  EXPECT_NEAR(noisy.seconds(0, 1e8), 0.1, 1e-9);
}

TEST(MachineTimes, BusyRanksUseTheSharedTimes) {
  MachineTimes machine = some_machine();
  EXPECT_NEAR(product(machine, 1e9, 4), 0.1, 1e-5) << "not given: as alone";
  machine.shared[f32] = some_times(1.75);
  EXPECT_NEAR(product(machine, 1e9, 1), 0.1, 1e-5);
  EXPECT_NEAR(product(machine, 1e9, 2), 0.175, 1e-5);
  EXPECT_NEAR(product(machine, 1e9, 4), 0.175, 1e-5);
  EXPECT_DOUBLE_EQ(machine.load(f32, 1, false), 1e9);
  EXPECT_DOUBLE_EQ(machine.load(f32, 1, true), 2e8);
  EXPECT_DOUBLE_EQ(machine.load(f32, 4, false), 1e9 / 1.75);
}

TEST(MachineTimes, MoreThreadsThanCoresShareThem) {
  const MachineTimes machine = some_machine();
  EXPECT_DOUBLE_EQ(machine.crowding(4, 2), 1) << "8 threads on 8 cores";
  EXPECT_DOUBLE_EQ(machine.crowding(8, 2), 2 * 1.5);
  EXPECT_NEAR(product(machine, 1e9, 8), 0.1 * 3, 1e-4);
  EXPECT_DOUBLE_EQ(machine.load(f32, 16, false), 1e9 / 3) << "a thread of each rank loads";
  MachineTimes gpu = some_machine();
  gpu.on_gpu = true;
  EXPECT_DOUBLE_EQ(gpu.crowding(8, 2), 1);
}

TEST(MachineTimes, OtherNumbersOfThreadsAreInProportion) {
  const MachineTimes machine = some_machine();
  EXPECT_NEAR(product(machine, 1e9, 1, 1), 0.2, 1e-5);
  EXPECT_NEAR(product(machine, 1e9, 1, 8), 0.025, 1e-6);
  MachineTimes gpu = some_machine();
  gpu.on_gpu = true;
  EXPECT_NEAR(product(gpu, 1e9, 1, 1), 0.1, 1e-5) << "a GPU's operations have no threads";
}

TEST(MachineTimes, WhatIsMissingIsNamed) {
  const MachineTimes machine = some_machine();
  expect_error(
      Status::data, [&] { machine.operation("attention", f32, 1, 1, 1, 1); }, "node.cfg",
      "`attention`", "[float32]");
  expect_error(
      Status::data, [&] { machine.operation("product", DType::bfloat16, 1, 1, 1, 1); }, "node.cfg",
      "[bfloat16]", "numerics.dtype");
  expect_error(
      Status::data, [&] { machine.load(DType::bfloat16, 1, false); }, "node.cfg", "[bfloat16]");
}

TEST(MachineTimes, MessagesTakeLatencyAndBytes) {
  const auto machine = std::make_shared<const MachineTimes>(some_machine());
  const auto model = time_model(machine, {.busy = 1, .threads = 2, .of_node = 2});
  const std::vector<Transfer> near{{1, 5000}}, far{{2, 5000}}, both{{1, 5000}, {2, 5000}};
  EXPECT_NEAR(model->exchange(0, near), 1e-3 + 5e-3, 1e-9);
  EXPECT_NEAR(model->exchange(0, far), 2e-3 + 5e-2, 1e-9);
  EXPECT_NEAR(model->exchange(0, both), 6e-3 + 52e-3, 1e-9);
  EXPECT_NEAR(model->exchange(3, std::vector<Transfer>{{2, 5000}}), 6e-3, 1e-9) << "ranks 2 and 3";
  EXPECT_NEAR(model->exchange(1, std::vector<Transfer>{{2, 5000}}), 52e-3, 1e-9) << "ranks 1 and 2";
  EXPECT_EQ(model->exchange(0, {}), 0);
  EXPECT_EQ(model->exchange_share(0, near), 0.25);
  EXPECT_EQ(model->exchange_share(0, far), 0);
  EXPECT_EQ(model->exchange_share(0, both), 0.25) << "the most";
  // Messages that need cores wait for them; those that do not, do not.
  const auto crowded = time_model(machine, {.busy = 8, .threads = 2, .of_node = 2});
  EXPECT_NEAR(crowded->exchange(0, near), 3 * 6e-3, 1e-9);
  EXPECT_NEAR(crowded->exchange(0, far), 52e-3, 1e-9);
}

// Such times can be added and subtracted, as dry runs do.
TEST(MachineTimes, MessagesOverAnUnknownLinkNeverArrive) {
  for (const double share : {0.0, 1.0}) {
    MachineTimes machine = some_machine();
    machine.node = Link{1e-3, 1e6, share};
    machine.network.reset();
    const auto model = time_model(std::make_shared<const MachineTimes>(machine), {.of_node = 2});
    const std::vector<Transfer> near{{1, 5000}}, far{{2, 5000}};
    EXPECT_TRUE(ends(model->exchange(0, near)));
    EXPECT_FALSE(ends(model->exchange(0, far)));
    Ledger ledger(Precision{}, model);
    for (int i = 0; i < 3; ++i) {
      const Elapsed before = ledger.elapsed();
      ledger.wait_until(ledger.begin_exchange(0, far));
      EXPECT_FALSE(ends((ledger.elapsed() - before).total())) << "of a second one, too";
      EXPECT_GE((0.0 * ledger.elapsed()).total(), 0);
    }
  }
}

TEST(MachineTimes, OperationsOfARankAreThoseOfItsMachine) {
  MachineTimes times = some_machine();
  times.shared[f32] = some_times(2);
  const auto machine = std::make_shared<const MachineTimes>(times);
  const auto seconds = [&](const TimedRanks& ranks) {
    return time_model(machine, ranks)->operation("product", f32, 1'000'000'000, 1'000'000);
  };
  EXPECT_NEAR(seconds({.busy = 1, .threads = 2}), 0.1, 1e-5);
  EXPECT_NEAR(seconds({.busy = 1, .threads = 1}), 0.2, 1e-5);
  EXPECT_NEAR(seconds({.busy = 4, .threads = 2}), 0.2, 1e-5);
}

// A plan of four ranks, two on each of two nodes, in two replicas. Ranks take 1, 2, 3 and 4 s.
Plan planned(std::int64_t fetched, std::vector<int> node_of = {0, 0, 1, 1}) {
  Workload workload = test::one_size_workload(test::cogvideox_2b());
  PlanMachine machine;
  machine.ranks = 4;
  machine.node_of = std::move(node_of);
  ParallelRequest request;
  request.replicas = 2;
  Plan plan = make_plan(workload, machine, request);
  for (int rank = 0; rank < 4; ++rank) {
    plan.sizes[0].ranks[index(rank)].step.time = {.computation = 0.75 * (rank + 1),
                                                  .memory = 0.25 * (rank + 1)};
  }
  plan.weights.residence = Residence::sharded;
  plan.weights.fetched = fetched;
  return plan;
}

double step(const Plan& plan, int rank, const MachineTimes& machine) {
  return step_time(plan, plan.sizes[0], rank, machine).total();
}

TEST(StepTime, IsThatOfTheSlowestRank) {
  const Plan plan = planned(0);
  const MachineTimes machine = some_machine();
  EXPECT_DOUBLE_EQ(step(plan, 2, machine), 3);
  const auto of = [&](int first, int count) {
    return step_time(plan, plan.sizes[0], RankRange{first, count}, machine);
  };
  EXPECT_DOUBLE_EQ(of(0, 2).total(), 2);
  EXPECT_DOUBLE_EQ(of(0, 4).total(), 4);
  EXPECT_DOUBLE_EQ(of(0, 4).memory, 1);
}

TEST(StepTime, WeightsThatAreFetchedAreHiddenByTheComputation) {
  MachineTimes machine = some_machine();
  machine.node = Link{0, 1e6, 0};
  EXPECT_DOUBLE_EQ(step(planned(1'500'000), 1, machine), 2) << "1.5 s of 2 s";
  const Plan many = planned(5'000'000);
  EXPECT_DOUBLE_EQ(step(many, 1, machine), 5) << "the weights take longer";
  EXPECT_DOUBLE_EQ(step_time(many, many.sizes[0], 1, machine).network, 3);
  machine.node = Link{0, 1e6, 0.5};
  EXPECT_DOUBLE_EQ(step(planned(1'000'000), 1, machine), 2.5) << "the rank does half of it";
  machine.node = Link{0, 1e6, 1};
  EXPECT_DOUBLE_EQ(step(planned(1'000'000), 1, machine), 3) << "the rank does all of it";
  machine.node = Link{0.25, 1e6, 1};
  EXPECT_DOUBLE_EQ(step(planned(1'000'000), 1, machine), 3.25);
}

TEST(StepTime, WeightsComeOverTheLinkOfTheirPlace) {
  MachineTimes machine = some_machine();
  machine.node = Link{0, 1e6, 1};
  machine.network = Link{0, 1e5, 1};
  machine.host_memory = Link{0, 4e6, 1};
  Plan plan = planned(1'000'000);
  EXPECT_DOUBLE_EQ(step(plan, 0, machine), 1 + 1);
  plan.weights.residence = Residence::host;
  EXPECT_DOUBLE_EQ(step(plan, 0, machine), 1 + 0.25);
  plan.weights.residence = Residence::sharded;
  plan.node = {0, 1, 1, 1};  // the first replica is on two nodes
  EXPECT_DOUBLE_EQ(step(plan, 0, machine), 1 + 10);
  EXPECT_DOUBLE_EQ(step(plan, 2, machine), 3 + 1);
  machine.network.reset();
  EXPECT_FALSE(ends(step(plan, 0, machine)));
  EXPECT_FALSE(ends(step_time(plan, plan.sizes[0], RankRange{0, 4}, machine).total()));
  EXPECT_DOUBLE_EQ(step(plan, 2, machine), 3 + 1);
}

}  // namespace
}  // namespace reelmesh
