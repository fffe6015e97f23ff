#include "plan/plan.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "plan/decode.hpp"
#include "plan/nodes.hpp"
#include "plan/speeds.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::expect_error;

const TextEncoderSizes t5_xxl{24, 385'892'352, 263'192'576};

TEST(Roles, AnyRankCountFrom1To64) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    const Plan together = make_plan({}, t5_xxl, ranks);
    EXPECT_EQ(together.mode, Mode::phased);
    EXPECT_EQ(together.role(ranks - 1), "text+denoise+decode");
    EXPECT_EQ(together.denoise, (std::vector<RankRange>{{0, ranks}}));

    ParallelRequest request;
    request.mode = Mode::split;
    if (ranks < 3) {
      expect_error(
          Status::unavailable, [&] { make_plan(request, t5_xxl, ranks); }, "at least 3");
      continue;
    }
    const Plan apart = make_plan(request, t5_xxl, ranks);
    EXPECT_EQ(apart.text, (RankRange{0, 1}));
    EXPECT_EQ(apart.denoise, (std::vector<RankRange>{{1, ranks - 2}}));
    EXPECT_EQ(apart.decode, (RankRange{ranks - 1, 1}));
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(apart.role(r), r == 0 ? "text" : r == ranks - 1 ? "decode" : "denoise");
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
  EXPECT_EQ(make_plan(request, t5_xxl, 7).denoise, (std::vector<RankRange>{{2, 2}, {4, 2}}));
  expect_error(
      Status::unavailable, [&] { make_plan(request, t5_xxl, 8); }, "the job has 8 ranks");
  request.ulysses.reset();
  EXPECT_EQ(make_plan(request, t5_xxl, 9).denoise, (std::vector<RankRange>{{2, 3}, {5, 3}}));
  expect_error(
      Status::unavailable, [&] { make_plan(request, t5_xxl, 8); }, "replicas");
}

TEST(Roles, PhasedNumbersMayLeaveRanksIdle) {
  ParallelRequest request;
  request.mode = Mode::phased;
  request.text = 2;
  request.ulysses = 3;
  request.decode = 1;
  const Plan plan = make_plan(request, t5_xxl, 4);
  EXPECT_EQ(plan.role(0), "text+denoise+decode");
  EXPECT_EQ(plan.role(1), "text+denoise");
  EXPECT_EQ(plan.role(3), "idle");
  // What is not given is chosen: three more ranks are a second half or a second row.
  EXPECT_EQ(make_plan(request, t5_xxl, 8).denoise, (std::vector<RankRange>{{0, 6}}));
  request.ulysses = 5;
  expect_error(
      Status::unavailable, [&] { make_plan(request, t5_xxl, 4); }, "need 5 ranks");
}

TEST(Roles, NumbersTooLargeForAnyMachineAreRefused) {
  ParallelRequest request;
  request.cfg = 2;
  request.replicas = request.ulysses = request.ring = 65536;
  for (const Mode mode : {Mode::phased, Mode::split}) {
    request.mode = mode;
    expect_error(
        Status::unavailable, [&] { make_plan(request, t5_xxl, 8); }, "8589934592 denoising");
  }
}

TEST(Roles, AutoGoesByTheNumbersThatAreNamed) {
  ParallelRequest request;
  request.decode = 2;
  EXPECT_EQ(make_plan(request, t5_xxl, 8).mode, Mode::split);
  EXPECT_EQ(make_plan(request, t5_xxl, 3).mode, Mode::phased);
}

TEST(DeviceMap, BalancesBytesForAnyRankCount) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    const DeviceMap map =
        balanced_device_map(t5_xxl.layers, t5_xxl.layer_bytes, t5_xxl.embedding_bytes, ranks);
    ASSERT_EQ(map.layer_rank.size(), 24U);
    EXPECT_TRUE(std::is_sorted(map.layer_rank.begin(), map.layer_rank.end()));
    EXPECT_LT(map.layer_rank.back(), ranks);
    std::vector<std::int64_t> bytes(std::size_t(ranks), 0);
    bytes[0] = t5_xxl.embedding_bytes;
    for (const int rank : map.layer_rank) bytes[std::size_t(rank)] += t5_xxl.layer_bytes;
    // No more than the even share and one layer.
    const std::int64_t all = t5_xxl.embedding_bytes + 24 * t5_xxl.layer_bytes;
    EXPECT_LE(*std::max_element(bytes.begin(), bytes.end()), all / ranks + t5_xxl.layer_bytes);
  }
  EXPECT_EQ(to_string(balanced_device_map(24, 100, 70, 4)), "0-5:0,6-11:1,12-17:2,18-23:3");
  // An embedding as large as three layers moves layers to the second rank.
  EXPECT_EQ(to_string(balanced_device_map(9, 100, 300, 2)), "0-2:0,3-8:1");
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
      Status::usage, [] { parse_device_map("0-3:0", 5, 1); }, "layer 4 to no rank");
  expect_error(
      Status::usage, [] { parse_device_map("0-4:0,4:0", 5, 1); }, "layer 4");
  expect_error(
      Status::usage, [] { parse_device_map("0-5:0", 5, 1); }, "layers 0 to 4");
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
      Status::data, [] { device_map_from_json(R"({"": "cpu"})", "map.json", 2, 2); }, "map.json");
  expect_error(
      Status::data, [] { device_map_from_json(R"({"encoder.block.0": 0})", "map.json", 2, 2); },
      "no entry");
  expect_error(
      Status::unavailable, [] { device_map_from_json(R"({"": 2})", "map.json", 2, 2); }, "rank 2");
}

// 480 x 720: 60 x 90 latents.
TEST(DecodeLayout, CutsRowsAndThenColumns) {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 10, 12, 15, 16, 20, 30, 60}) {
    EXPECT_EQ(decode_layout(60, 90, ranks), Layout::grid({60, 90}, {ranks, 1})) << ranks;
  }
  EXPECT_EQ(decode_layout(60, 90, 8), Layout::grid({60, 90}, {4, 2})) << "8 rows at most, or 15/2";
  EXPECT_EQ(decode_layout(60, 90, 40), Layout::grid({60, 90}, {20, 2}));
  EXPECT_EQ(decode_layout(60, 90, 120), Layout::grid({60, 90}, {60, 2}));
  EXPECT_EQ(decode_layout(60, 90, 128), Layout::grid({60, 90}, {64, 2}));
  EXPECT_EQ(decode_layout(2, 90, 8), Layout::grid({2, 90}, {2, 4}));
  EXPECT_EQ(decode_layout(1, 1, 8), Layout::grid({1, 1}, {8, 1}));
  for (int ranks = 1; ranks <= 200; ++ranks) {
    const Layout layout = decode_layout(60, 90, ranks);
    EXPECT_TRUE(layout.is_partition()) << ranks;
    EXPECT_EQ(layout.ranks(), ranks);
  }
}

TEST(DecodeLayout, FollowsTheSpeeds) {
  const Layout layout = decode_layout(60, 90, 3, {1, 1, 4});
  EXPECT_EQ(layout.box(0), (Box{{0, 0}, {10, 90}}));
  EXPECT_EQ(layout.box(2), (Box{{20, 0}, {40, 90}}));
}

TEST(OrderByNode, KeepsThoseWhoTalkMostTogether) {
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
    EXPECT_EQ(order_by_node(row.node_of, row.close), row.order) << row.why;
}

// Two groups of 8 = cfg 2 x ring 2 x ulysses 2.
TEST(CloseRanks, AreTheLargestPartsThatANodeHasRoomFor) {
  using Ranges = std::vector<RankRange>;
  const Ranges groups{{0, 8}, {8, 8}};
  const auto on_nodes_of = [](int ranks) {
    std::vector<int> node_of;
    for (int r = 0; r < 16; ++r) node_of.push_back(r / ranks);
    return node_of;
  };
  EXPECT_EQ(close_ranks(groups, {4, 2}, on_nodes_of(16)), groups);
  EXPECT_EQ(close_ranks(groups, {4, 2}, on_nodes_of(8)), groups);
  EXPECT_EQ(close_ranks(groups, {4, 2}, on_nodes_of(5)), (Ranges{{0, 4}, {4, 4}, {8, 4}, {12, 4}}));
  EXPECT_EQ(close_ranks({{1, 4}}, {4, 2}, on_nodes_of(3)), (Ranges{{1, 2}, {3, 2}}));
  EXPECT_EQ(close_ranks({{0, 4}}, {4, 2}, on_nodes_of(1)), (Ranges{{0, 2}, {2, 2}}));
  EXPECT_EQ(close_ranks({{0, 4}}, {}, on_nodes_of(1)), (Ranges{{0, 4}}));
}

TEST(OrderByNode, GivesEveryRankOnePlace) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (int nodes = 1; nodes <= 8; ++nodes) {
      std::vector<int> node_of;
      for (int r = 0; r < ranks; ++r) node_of.push_back(r * 7 % nodes);
      ParallelRequest request;
      request.replicas = 1 + ranks / 5;
      std::vector<int> order = order_by_node(node_of, make_plan(request, t5_xxl, ranks).denoise);
      std::sort(order.begin(), order.end());
      std::vector<int> all(std::size_t(ranks), 0);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(order, all);
    }
  }
}

TEST(Describe, NamesSpeeds) {
  ParallelRequest request;
  request.cfg = 1;
  Plan plan = make_plan(request, t5_xxl, 2);
  const DenoiseSizes sizes{{2, 4, 5}, 7, 2, 4, 8, 1, 4, 64};
  EXPECT_EQ(describe(plan, sizes).find("speeds"), std::string::npos);
  plan.speeds = {1, 3};
  EXPECT_EQ(plan.speeds_of({1, 1}), (std::vector<double>{3}));
  const std::string text = describe(plan, sizes);
  EXPECT_NE(text.find("speeds: 1, 3"), std::string::npos) << text;
  EXPECT_NE(text.find("[0:2, 1:4, 0:5]"), std::string::npos) << text;
}

TEST(Describe, NamesRolesMeshAndBoxes) {
  ParallelRequest request;
  request.mode = Mode::split;
  request.cfg = 1;
  const DenoiseSizes sizes{{2, 4, 5}, 7, 2, 4, 8, 1, 4, 64};
  const std::string text = describe(make_plan(request, t5_xxl, 4), sizes);
  EXPECT_NE(text.find("split"), std::string::npos);
  EXPECT_NE(text.find("denoise: ranks 1-2"), std::string::npos) << text;
  EXPECT_NE(text.find("mesh: cfg 1 x ring 1 x ulysses 2 (the cheapest of 2: "), std::string::npos)
      << text;
  EXPECT_NE(text.find("[0:2, 2:4, 0:5]"), std::string::npos) << text;
  EXPECT_NE(text.find("text tokens [7]: [0:4] [4:7]"), std::string::npos) << text;
}

}  // namespace
}  // namespace reelmesh
