#include "plan/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "plan/describe.hpp"
#include "plan/nodes.hpp"
#include "plan/workloads.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

std::vector<int> numbers(const std::vector<LaunchedRank>& ranks) {
  std::vector<int> all;
  for (const LaunchedRank rank : ranks) all.push_back(number_of(rank));
  return all;
}

using test::cogvideox_2b;
using test::expect_error;
using test::machine_with;
using test::one_size_workload;
using test::stdit_xl;
using test::t5_xxl;
using test::toy_costs;
using testing::HasSubstr, testing::Not;

TEST(Roles, AnyRankCountFrom1To64) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    const Roles together = assign_roles({}, ranks);
    EXPECT_EQ(together.mode, Mode::phased);
    EXPECT_EQ(together.of(ranks - 1), "text+denoise+decode");
    EXPECT_EQ(together.denoise, (std::vector<RankRange>{{0, ranks}}));

    ParallelRequest request;
    request.mode = Mode::split;
    if (ranks < 3) {
      expect_error(
          Status::unavailable, [&] { assign_roles(request, ranks); }, "at least 3");
      continue;
    }
    const Roles apart = assign_roles(request, ranks);
    EXPECT_EQ(apart.text, (RankRange{0, 1}));
    EXPECT_EQ(apart.denoise, (std::vector<RankRange>{{1, ranks - 2}}));
    EXPECT_EQ(apart.decode, (std::vector<RankRange>{{ranks - 1, 1}}));
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(apart.of(r), r == 0 ? "text" : r == ranks - 1 ? "decode" : "denoise");
    }
  }
}

TEST(Roles, NumbersMustAddUp) {
  ParallelRequest request;
  request.mode = Mode::split;
  request.text = 2;
  request.replicas = 2;
  request.ulysses = 2;
  request.decode = 1;
  EXPECT_EQ(assign_roles(request, 7).denoise, (std::vector<RankRange>{{2, 2}, {4, 2}}));
  expect_error(
      Status::unavailable, [&] { assign_roles(request, 8); }, "expected 8, the ranks of the job");
  request.ulysses.reset();
  EXPECT_EQ(assign_roles(request, 9).denoise, (std::vector<RankRange>{{2, 3}, {5, 3}}));
  expect_error(
      Status::unavailable, [&] { assign_roles(request, 8); }, "replicas");
}

TEST(Roles, ReplicasDecodeTheirOwnClips) {
  ParallelRequest request;
  request.mode = Mode::phased;
  request.replicas = 2;
  EXPECT_EQ(assign_roles(request, 6).decode, (std::vector<RankRange>{{0, 3}, {3, 3}}));
  request.decode = 2;
  EXPECT_EQ(assign_roles(request, 6).decode, (std::vector<RankRange>{{0, 2}, {3, 2}}));
  request.decode = 5;
  EXPECT_EQ(assign_roles(request, 6).decode, (std::vector<RankRange>{{0, 3}, {3, 3}}));
  request.mode = Mode::split;
  request.decode = 2;
  EXPECT_EQ(assign_roles(request, 7).decode, (std::vector<RankRange>{{5, 2}}));
  EXPECT_EQ(assign_roles(request, 7).decoder(1), 0U);
}

TEST(Roles, GroupsOfATrainingEncodeVideosOfTheirOwn) {
  ParallelRequest request;
  request.mode = Mode::phased;
  request.replicas = 1;
  request.decode = 2;
  request.encoders = 3;
  const Roles roles = assign_roles(request, 7);
  EXPECT_EQ(roles.decode, (std::vector<RankRange>{{0, 2}, {2, 2}, {4, 2}}));
  EXPECT_EQ(roles.denoise, (std::vector<RankRange>{{0, 7}}));
  expect_error(
      Status::unavailable, [&] { assign_roles(request, 5); }, "6 decode ranks need 6 ranks");
}

TEST(Roles, PhasedNumbersMayLeaveRanksIdle) {
  ParallelRequest request;
  request.mode = Mode::phased;
  request.text = 2;
  request.ulysses = 3;
  request.decode = 1;
  const Roles roles = assign_roles(request, 4);
  EXPECT_EQ(roles.of(0), "text+denoise+decode");
  EXPECT_EQ(roles.of(1), "text+denoise");
  EXPECT_EQ(roles.of(3), "idle");
  // cfg and ring are not given and are chosen: the group grows to 6 ranks (cfg 2 or ring 2).
  EXPECT_EQ(assign_roles(request, 8).denoise, (std::vector<RankRange>{{0, 6}}));
  request.ulysses = 5;
  expect_error(
      Status::unavailable, [&] { assign_roles(request, 4); }, "need 5 ranks");
}

TEST(Roles, IdleRanksAreNamedInOneSentence) {
  const auto idle = [](const std::vector<RankRange>& denoise, int ranks) {
    return idle_text({Mode::phased, {0, 1}, denoise, {{0, 2}}}, ranks);
  };
  EXPECT_EQ(idle({{0, 3}}, 3), "");
  EXPECT_EQ(idle({{0, 3}}, 4), "rank 3 has nothing to do in this layout");
  EXPECT_EQ(idle({{0, 3}}, 5), "ranks 3-4 have nothing to do in this layout");
  EXPECT_EQ(idle({{0, 3}, {6, 1}}, 8), "ranks 3-5 and 7 have nothing to do in this layout");
  EXPECT_EQ(idle({{0, 3}, {4, 1}, {6, 10}}, 4096),
            "ranks 3, 5 and 16-4095 have nothing to do in this layout");
}

TEST(Roles, NumbersTooLargeForAnyMachineAreRefused) {
  ParallelRequest request;
  request.cfg = 2;
  request.replicas = request.ulysses = request.ring = 65536;
  for (const Mode mode : {Mode::phased, Mode::split}) {
    request.mode = mode;
    expect_error(
        Status::unavailable, [&] { assign_roles(request, 8); }, "8589934592 denoising");
  }
}

TEST(Roles, AutoGoesByTheNumbersThatAreNamed) {
  ParallelRequest request;
  request.decode = 2;
  EXPECT_EQ(assign_roles(request, 8).mode, Mode::split);
  EXPECT_EQ(assign_roles(request, 3).mode, Mode::phased);
}

TEST(GroupSize, IsAMultipleOfWhatIsGiven) {
  EXPECT_EQ(group_size({}, 7), 7);
  EXPECT_EQ(group_size({{}, 3, {}}, 7), 6);
  EXPECT_EQ(group_size({{}, 3, {}}, 2), 3);
  EXPECT_EQ(group_size({1, 3, 1}, 7), 3);
  EXPECT_EQ(group_size({2, {}, {}}, 7), 6);
}

TEST(DeviceMap, BalancesBytesForAnyRankCount) {
  const TextWorkload& t5 = t5_xxl;
  for (int ranks = 1; ranks <= 64; ++ranks) {
    const DeviceMap map = balanced_device_map(t5.layers, t5.layer_bytes, ranks);
    ASSERT_EQ(map.layer_rank.size(), 24U);
    EXPECT_TRUE(std::is_sorted(map.layer_rank.begin(), map.layer_rank.end()));
    EXPECT_LT(map.layer_rank.back(), ranks);
    std::vector<std::int64_t> bytes(std::size_t(ranks), 0);
    for (const int rank : map.layer_rank) bytes[std::size_t(rank)] += t5.layer_bytes;
    // At most one layer more than an even share.
    const std::int64_t all = 24 * t5.layer_bytes;
    EXPECT_LE(*std::max_element(bytes.begin(), bytes.end()), all / ranks + t5.layer_bytes);
  }
  EXPECT_EQ(to_string(balanced_device_map(24, 100, 4)), "0-5:0,6-11:1,12-17:2,18-23:3");
}

TEST(DeviceMap, ReadsRanges) {
  const DeviceMap map = parse_device_map("0-1:1,2:0,3-4:2", 5, 3);
  EXPECT_EQ(map.layer_rank, (std::vector<int>{1, 1, 0, 2, 2}));
  EXPECT_EQ(map.embedding_rank, 1);
  EXPECT_EQ(map.final_norm_rank, 2);
  using Stage = DeviceMap::Stage;
  EXPECT_EQ(map.stages(),
            (std::vector<Stage>{
                {1, 0, 2, true, false}, {0, 2, 3, false, false}, {2, 3, 5, false, true}}));
  expect_error(
      Status::usage, [] { parse_device_map("0-3:0", 5, 1); }, "for layer 4");
  expect_error(
      Status::usage, [] { parse_device_map("0-4:0,4:0", 5, 1); }, "layer 4");
  expect_error(
      Status::usage, [] { parse_device_map("0-5:0", 5, 1); }, "expected 0 to 4");
  expect_error(
      Status::usage, [] { parse_device_map("zero:0", 5, 1); }, "parallel.device-map");
  expect_error(
      Status::usage, [] { parse_device_map("0-4", 5, 1); }, "parallel.device-map");
  expect_error(
      Status::unavailable, [] { parse_device_map("0-4:1", 5, 1); }, "rank 1");
}

TEST(DeviceMap, ReadsWhatAccelerateWrites) {
  const DeviceMap map = device_map_from_json(
      R"({"shared": 0, "encoder.embed_tokens": 0, "encoder.block.0": 0, "encoder.block.1": 1,
          "encoder.block.10": 0, "encoder.block": 1, "encoder.final_layer_norm": 2,
          "encoder.dropout": 2})",
      "map.json", 11, 3);
  EXPECT_EQ(map.layer_rank, (std::vector<int>{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(map.embedding_rank, 0);
  EXPECT_EQ(map.final_norm_rank, 2);
  EXPECT_EQ(map.stages().size(), 4U) << "the final norm is a stage of its own";
  EXPECT_EQ(device_map_from_json(R"({"": 1})", "map.json", 2, 2).layer_rank,
            (std::vector<int>{1, 1}));
  expect_error(
      Status::data, [] { device_map_from_json(R"({"": "tpu"})", "map.json", 2, 2); },
      "map.json: '' is \"tpu\", expected a rank, \"cpu\" or \"disk\"");
  expect_error(
      Status::data, [] { device_map_from_json(R"({"encoder.block.0": 0})", "map.json", 2, 2); },
      "no entry");
  expect_error(
      Status::unavailable, [] { device_map_from_json(R"({"": 2})", "map.json", 2, 2); }, "rank 2");
}

TEST(DeviceMap, LayersOnTheHostAreComputedByTheRankBefore) {
  const DeviceMap map = device_map_from_json(
      R"({"shared": "cpu", "encoder.block.0": "disk", "encoder.block.1": 1, "encoder.block.2": "cpu",
          "encoder.block.3": 0, "encoder.final_layer_norm": 0})",
      "map.json", 4, 2);
  EXPECT_EQ(map.layer_rank, (std::vector<int>{1, 1, 1, 0}));
  EXPECT_EQ(map.embedding_rank, 1);
  EXPECT_EQ(map.on_host, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(to_string(map), "0-0:1@host,1-1:1,2-2:1@host,3-3:0");
  using Stage = DeviceMap::Stage;
  EXPECT_EQ(map.stages(), (std::vector<Stage>{{1, 0, 1, true, false, true},
                                              {1, 1, 2, false, false, false},
                                              {1, 2, 3, false, false, true},
                                              {0, 3, 4, false, true, false}}));
  EXPECT_EQ(device_map_from_json(R"({"": "cpu"})", "map.json", 2, 2).on_host,
            (std::vector<bool>{true, true}));
}

TEST(DeviceMap, TextAndJsonAreReadAsWritten) {
  for (const char* text : {"0-11:0,12-23:1", "0-3:1,4-23:1@host", "0-0:0@host,1-22:2,23-23:0"}) {
    const DeviceMap map = parse_device_map(text, 24, 3);
    EXPECT_EQ(to_string(map), text);
    const DeviceMap again = device_map_from_json(device_map_to_json(map), "map.json", 24, 3);
    EXPECT_EQ(to_string(again), text);
    EXPECT_EQ(again.stages(), map.stages());
  }
  expect_error(
      Status::usage, [] { parse_device_map("0-23:0@disk", 24, 1); },
      "found '0-23:0@disk', expected auto, ranges");
}

TEST(DeviceMap, RanksWithoutRoomGetNoLayers) {
  DeviceMap map = balanced_device_map(10, 100, 3, {-5, 700, 500});
  EXPECT_EQ(map.embedding_rank, 1);
  EXPECT_EQ(to_string(map), "0-5:1,6-9:2");
  map = balanced_device_map(10, 100, 3, {400, 0, 800});
  EXPECT_EQ(map.embedding_rank, 0);
  EXPECT_EQ(to_string(map), "0-2:0,3-9:2");
  // No rank has room: balanced as without limits; the job is refused later, with the numbers.
  EXPECT_EQ(to_string(balanced_device_map(4, 100, 2, {-10, 0})), "0-1:0,2-3:1");
}

TEST(DeviceMap, EqualRoomsChangeNothing) {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    const std::vector<std::int64_t> rooms(std::size_t(ranks), std::int64_t{1} << 30);
    EXPECT_EQ(to_string(balanced_device_map(24, 385'892'352, ranks)),
              to_string(balanced_device_map(24, 385'892'352, ranks, rooms)))
        << ranks;
  }
}

TEST(OrderByNode, KeepsCommunicatingRanksOnOneNode) {
  using Ranks = std::vector<int>;
  using Ranges = std::vector<RankRange>;
  const struct {
    const char* why;
    Ranks node_of;
    Ranges close;
    Ranks order;
  } table[] = {
      {"one node", {0, 0, 0, 0}, {{0, 4}}, {0, 1, 2, 3}},
      {"in order already", {0, 0, 2, 2}, {{0, 2}, {2, 2}}, {0, 1, 2, 3}},
      {"dealt out round by round", {0, 1, 0, 1}, {{0, 2}, {2, 2}}, {0, 2, 1, 3}},
      {"a group larger than a node", {0, 1, 0, 1}, {{0, 4}}, {0, 2, 1, 3}},
      {"text, two groups of three, decode",
       {0, 0, 0, 0, 4, 4, 4, 4},
       {{1, 3}, {4, 3}},
       {0, 1, 2, 3, 4, 5, 6, 7}},
      {"the same, dealt out", {0, 1, 0, 1, 0, 1, 0, 1}, {{1, 3}, {4, 3}}, {6, 0, 2, 4, 1, 3, 5, 7}},
      {"pairs that would straddle", {0, 0, 0, 3, 3, 3}, {{0, 2}, {2, 2}}, {0, 1, 3, 4, 2, 5}},
      {"the fullest node that has room", {0, 0, 0, 3, 3}, {{0, 2}, {2, 3}}, {3, 4, 0, 1, 2}},
      {"nobody talks", {0, 1, 0, 1}, {}, {0, 2, 1, 3}},
  };
  for (const auto& row : table)
    EXPECT_EQ(numbers(order_by_node(row.node_of, row.close)), row.order) << row.why;
}

// Two groups of 8 = cfg 2 x ring 2 x ulysses 2.
TEST(CloseRanks, AreTheLargestPartsThatANodeHasRoomFor) {
  using Ranges = std::vector<RankRange>;
  const Ranges groups{{0, 8}, {8, 8}};
  const auto ranks_per_node = [](int ranks) {
    std::vector<int> node_of;
    for (int r = 0; r < 16; ++r) node_of.push_back(r / ranks);
    return node_of;
  };
  EXPECT_EQ(ranges_to_colocate(groups, {4, 2}, ranks_per_node(16)), groups);
  EXPECT_EQ(ranges_to_colocate(groups, {4, 2}, ranks_per_node(8)), groups);
  EXPECT_EQ(ranges_to_colocate(groups, {4, 2}, ranks_per_node(5)),
            (Ranges{{0, 4}, {4, 4}, {8, 4}, {12, 4}}));
  EXPECT_EQ(ranges_to_colocate({{1, 4}}, {4, 2}, ranks_per_node(3)), (Ranges{{1, 2}, {3, 2}}));
  EXPECT_EQ(ranges_to_colocate({{0, 4}}, {4, 2}, ranks_per_node(1)), (Ranges{{0, 2}, {2, 2}}));
  EXPECT_EQ(ranges_to_colocate({{0, 4}}, {}, ranks_per_node(1)), (Ranges{{0, 4}}));
}

TEST(OrderByNode, GivesEveryRankOneRankOfThePlan) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (int nodes = 1; nodes <= 8; ++nodes) {
      std::vector<int> node_of;
      for (int r = 0; r < ranks; ++r) node_of.push_back(r * 7 % nodes);
      ParallelRequest request;
      request.replicas = 1 + ranks / 5;
      std::vector<int> order =
          numbers(order_by_node(node_of, assign_roles(request, ranks).denoise));
      std::sort(order.begin(), order.end());
      std::vector<int> all(std::size_t(ranks), 0);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(order, all);
    }
  }
}

TEST(Plan, HasOneLayoutForEachSizeAndReplica) {
  ParallelRequest request;
  request.replicas = 2;
  Workload workload = one_size_workload(cogvideox_2b());
  workload.sizes.push_back(test::clip_workload(stdit_xl()));
  workload.sizes.back().denoise.size = 1;
  const Plan plan = make_plan(workload, machine_with(8), request);
  ASSERT_EQ(plan.sizes.size(), 2U);
  ASSERT_EQ(plan.sizes[0].denoise.size(), 2U);
  EXPECT_EQ(plan.sizes[0].denoise[0].mesh, (Mesh{2, 1, 2}));
  EXPECT_EQ(plan.sizes[0].denoise[1].tokens, plan.sizes[0].denoise[0].tokens);
  EXPECT_EQ(plan.sizes[1].denoise[1].parts, (std::vector<int>{4, 1, 1}));
  ASSERT_EQ(plan.roles.decode, (std::vector<RankRange>{{0, 4}, {4, 4}}));
  EXPECT_EQ(plan.sizes[0].decode[1].latents.ranks(), 4);
  EXPECT_EQ(plan.decoded_latents(0, 6), plan.sizes[0].decode[1].latents.box(2));
  // Rank 5 is rank 1 of the second replica (ranks 4-7), in its first CFG half (ranks 4-5).
  EXPECT_EQ(plan.tokens(0, 5), plan.sizes[0].denoise[1].tokens.box(1));
  EXPECT_EQ(plan.tokens(0, 7), plan.tokens(0, 5)) << "the other half has the same boxes";
  EXPECT_EQ(plan.text_tokens(1, 3), (Box{{0}, {120}})) << "cross-attention wants the whole text";
  EXPECT_GT(plan.sizes[0].ranks[7].step.flops, 0);
}

TEST(Plan, SaysNothingOfStagesThatARankHasNoPartIn) {
  ParallelRequest request;
  request.mode = Mode::split;
  const Plan plan = make_plan(one_size_workload(cogvideox_2b()), machine_with(5), request);
  EXPECT_TRUE(plan.tokens(0, 0).empty());
  EXPECT_TRUE(plan.text_tokens(0, 4).empty());
  EXPECT_TRUE(plan.decoded_latents(0, 3).empty());
  EXPECT_FALSE(plan.decoded_latents(0, 4).empty());
  EXPECT_EQ(plan.embeddings_rank(), 0);
  EXPECT_EQ(plan.sizes[0].ranks[0].step.flops, 0);
}

TEST(Plan, SharesLayoutsOfReplicasOfEqualWeights) {
  ParallelRequest request;
  request.replicas = 2;
  PlanMachine machine = machine_with(8);
  machine.rank_weights.values = {1, 2, 1, 2, 1, 1, 1, 1};
  const Plan plan = make_plan(one_size_workload(cogvideox_2b()), machine, request);
  EXPECT_NE(plan.sizes[0].denoise[0].tokens, plan.sizes[0].denoise[1].tokens);
  EXPECT_EQ(plan.sizes[0].denoise[1].tokens, Layout::cut({13, 30, 45}, 1, 2));
}

// Ranks are ordered for the mesh that is chosen with the weights: here ring 4, whose ranks need not
// share a node, instead of Ulysses 4.
TEST(Plan, PlacesRanksForTheMeshThatTheWeightsGive) {
  PlanMachine machine = machine_with(8);
  machine.node_of = {0, 1, 2, 3, 0, 1, 2, 3};  // nodes of two ranks
  machine.rank_weights.values = {1, 2, 1, 2, 1, 2, 1, 2};
  const Plan plan = make_plan(one_size_workload(cogvideox_2b()), machine, {});
  const Mesh& mesh = plan.sizes[0].denoise[0].mesh;
  EXPECT_EQ(mesh, (Mesh{2, 4, 1}));
  EXPECT_EQ(plan.launched,
            order_by_node(machine.node_of, ranges_to_colocate(plan.roles.denoise,
                                                              {mesh.branch_ranks(), mesh.ulysses},
                                                              machine.node_of)));
  EXPECT_EQ(plan.rank_weights, machine.rank_weights.values) << "given by plan rank";
}

// Measured weights belong to ranks as launched and are permuted with them.
TEST(Plan, MeasuredWeightsGoWithTheirRanks) {
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    const int ranks = 1 + int(random() % 12);
    PlanMachine machine = machine_with(ranks);
    machine.rank_weights.by_plan_rank = machine.memory_limits.by_plan_rank = false;
    for (int r = 0; r < ranks; ++r) {
      machine.node_of.push_back(int(random() % 3));
      machine.rank_weights.values.push_back(double(1 + random() % 2));
      machine.memory_limits.values.push_back((std::int64_t{100} << 30) + r);
    }
    ParallelRequest request;
    request.replicas = ranks % 2 == 0 ? 2 : 1;
    const Plan plan = make_plan(one_size_workload(cogvideox_2b()), machine, request);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = std::size_t(rank);
      const auto launched = std::size_t(plan.launched[at]);
      EXPECT_EQ(plan.rank_weights[at], machine.rank_weights.values[launched]);
      EXPECT_EQ(plan.memory.limits[at], machine.memory_limits.values[launched]);
      EXPECT_EQ(plan.node[at], machine.node_of[launched]);
    }
    std::vector<int> sorted = numbers(plan.launched);
    std::ranges::sort(sorted);
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(sorted[std::size_t(r)], r);
  }
}

TEST(Plan, KeepsTheLaunchersOrderWhereAsked) {
  PlanMachine machine = machine_with(4);
  machine.node_of = {0, 1, 0, 1};
  ParallelRequest request;
  EXPECT_EQ(numbers(make_plan(one_size_workload(cogvideox_2b()), machine, request).launched),
            (std::vector<int>{0, 2, 1, 3}));
  request.order = Order::rank;
  const Plan plan = make_plan(one_size_workload(cogvideox_2b()), machine, request);
  EXPECT_EQ(numbers(plan.launched), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(plan.node, machine.node_of);
}

TEST(Plan, GivesStagesThatDoNotFitMoreRanks) {
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  Workload workload = one_size_workload(cogvideox_2b());
  toy_costs(workload).of_denoising = [](const DenoiseLayout&, int) {
    return DenoiseCost{{2 * gib, gib, 0}, {}};
  };
  toy_costs(workload).of_decoding = [](const DecodeLayout& layout, int rank) {
    return StageMemory{gib, 12 * gib * layout.latents.box(rank).numel() / (13 * 60 * 90), 0};
  };
  PlanMachine machine = machine_with(16);
  machine.memory_limits.values.assign(16, 5 * gib);
  ParallelRequest request;
  request.mode = Mode::split;
  const Plan plan = make_plan(workload, machine, request);
  EXPECT_TRUE(plan.memory.fits()) << plan_text(describe(plan.memory));
  EXPECT_GE(plan.roles.text.count, 2);
  EXPECT_GE(plan.roles.decode.front().count, 4);
  request.decode = 1;  // as asked, though it does not fit
  EXPECT_FALSE(make_plan(workload, machine, request).memory.fits());
}

TEST(Plan, CountsEmbeddingsThatWait) {
  constexpr std::int64_t mib = 1 << 20;
  Workload workload = one_size_workload(cogvideox_2b());
  workload.embedding_bytes = 40 * mib;
  workload.largest_embedding_bytes = 4 * mib;
  PlanMachine machine = machine_with(4);
  EXPECT_EQ(make_plan(workload, machine, {}).memory.ranks[2].embeddings, 40 * mib);
  ParallelRequest split;
  split.mode = Mode::split;
  EXPECT_EQ(make_plan(workload, machine, split).memory.ranks[2].embeddings, 4 * mib);
  EXPECT_EQ(make_plan(workload, machine, split).memory.ranks[0].embeddings, 40 * mib);
  machine.count_waiting_embeddings = false;
  EXPECT_EQ(make_plan(workload, machine, {}).memory.ranks[2].embeddings, 0);
}

TEST(Plan, InputsAreEncodedByTheDecodingRanks) {
  constexpr std::int64_t mib = 1 << 20;
  Workload workload = one_size_workload(cogvideox_2b());
  toy_costs(workload).of_decoding = [](const DecodeLayout&, int) {
    return StageMemory{3 * mib, 1 * mib, 0};
  };
  workload.sizes[0].encodes = true;
  toy_costs(workload).of_encoding = [](const DecodeLayout& layout, int rank) {
    return StageMemory{2 * mib, layout.latents.box(rank).extent[1] * mib, 0};
  };
  const Plan phased = make_plan(workload, machine_with(4), {});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(phased.memory.ranks[std::size_t(rank)].encode.working, 15 * mib) << "of 60 rows";
    EXPECT_FALSE(phased.memory.ranks[std::size_t(rank)].keeps_encoder);
  }
  ParallelRequest request;
  request.mode = Mode::split;
  request.decode = 2;
  const Plan split = make_plan(workload, machine_with(6), request);
  for (int rank = 0; rank < 6; ++rank) {
    const RankMemory& memory = split.memory.ranks[std::size_t(rank)];
    EXPECT_EQ(memory.encode.used(), rank >= 4) << rank;
    EXPECT_EQ(memory.keeps_encoder, rank >= 4) << rank;
  }
}

TEST(Plan, ShortensTheQueueOfEmbeddingsToKeepALimit) {
  constexpr std::int64_t mib = 1 << 20;
  Workload workload = one_size_workload(cogvideox_2b());
  toy_costs(workload).of_text = [](const DeviceMap::Stage&) { return StageMemory{}; };
  workload.embedding_bytes = 4000 * mib;
  workload.largest_embedding_bytes = 4 * mib;
  for (const Mode mode : {Mode::phased, Mode::split}) {
    ParallelRequest request;
    request.mode = mode;
    PlanMachine machine = machine_with(4);
    const Plan free = make_plan(workload, machine, request);
    EXPECT_EQ(free.queue_bytes, 4000 * mib);
    EXPECT_THAT(plan_text(describe(free, 0)), Not(HasSubstr("queue: ")));
    Workload small = workload;
    small.embedding_bytes = 40 * mib;
    const Plan of_small = make_plan(small, machine, request);
    std::int64_t limit = 0;
    for (int r = 0; r < 4; ++r) limit = std::max(limit, of_small.memory.peak(r));
    machine.memory_limits.values.assign(4, limit);
    const Plan tight = make_plan(workload, machine, request);
    EXPECT_TRUE(tight.memory.fits()) << plan_text(describe(tight.memory));
    EXPECT_FALSE(tight.memory.offloads);
    EXPECT_GE(tight.queue_bytes, 36 * mib);
    EXPECT_LE(tight.queue_bytes, 40 * mib);
    const auto holder = static_cast<std::size_t>(tight.embeddings_rank());
    EXPECT_EQ(tight.memory.ranks[holder].embeddings, tight.queue_bytes);
    EXPECT_THAT(plan_text(describe(tight, 0)),
                HasSubstr("of text embeddings wait at a time, of 3.91 GiB in all"));
  }
}

TEST(Plan, OfThousandsOfRanksAndManySizes) {
  Workload workload = one_size_workload(cogvideox_2b());
  for (const std::int64_t frames : {5, 21}) {
    workload.sizes.push_back(workload.sizes.front());
    workload.sizes.back().denoise.size = workload.sizes.size() - 1;
    workload.sizes.back().denoise.latents[0] = workload.sizes.back().decode.latents[0] = frames;
    workload.sizes.back().decode.group_latents = frames;
  }
  PlanMachine machine = machine_with(4096);
  for (int r = 0; r < machine.ranks; ++r) machine.node_of.push_back(r / 8);
  ParallelRequest request;
  request.replicas = 16;
  const Plan plan = make_plan(workload, machine, request);
  EXPECT_EQ(plan.roles.denoise.size(), 16U);
  for (const ClipPlan& size : plan.sizes) {
    EXPECT_TRUE(size.denoise[15].tokens.is_partition());
    EXPECT_TRUE(size.decode.front().latents.is_partition());
  }
  const std::string text = plan_text(describe(plan, 0));
  EXPECT_LT(text.size(), 3000U) << "a person can read it";
  EXPECT_NE(text.find("more (plan --json has all)"), std::string::npos) << text;
}

}  // namespace
}  // namespace reelmesh
