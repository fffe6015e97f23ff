#include "plan/memory.hpp"

#include <gmock/gmock.h>

#include "models/t5/memory.hpp"
#include "plan/cost.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::expect_error;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t gib = std::int64_t{1} << 30;
constexpr std::int64_t tokens = 120;
const Precision bf16{DType::bfloat16, DType::bfloat16}, f32{DType::float32, DType::float32};

T5Config t5_xxl() {
  T5Config c;
  c.d_model = 4096;
  c.d_ff = 10240;
  c.num_layers = 24;
  c.num_heads = 64;
  return c;
}

// T5-XXL, STDiT-XL/2 and the image autoencoder, 16 frames of 256 x 256.
MemoryPlan open_sora(int ranks, const std::vector<std::int64_t>& limits, const Precision& precision,
                     DeviceMap* map = nullptr, ParallelRequest request = {}) {
  const T5Config config = t5_xxl();
  MemoryPlan memory;
  memory.limits = limits_of_ranks(limits, ranks);
  TextEncoderSizes sizes{24,
                         weight_bytes(t5_tensors(config, {1, 2, false, false}), precision),
                         weight_bytes(t5_tensors(config, {0, 0, true, false}), precision),
                         {}};
  for (const std::int64_t limit : memory.limits) {
    const StageMemory working{0, t5_working_bytes(config, tokens, precision)};
    sizes.rooms.push_back(limit - program_bytes - thread_bytes(t5_tensors(config), precision) -
                          working.all());
  }
  const Plan plan = make_plan(request, sizes, ranks);
  if (map != nullptr) *map = plan.device_map;
  const std::vector<StageMemory> text = text_memory(plan, config, tokens, precision);
  const ClipCost cost =
      open_sora_cost(plan, {}, {}, {{16, 32, 32}, 256, 256, 8}, 1, tokens, 16, precision);
  for (std::size_t r = 0; r < text.size(); ++r) {
    memory.ranks.push_back({text[r], cost.ranks[r].denoise, cost.ranks[r].decode, 0});
  }
  take_turns(memory);
  return memory;
}

TEST(Memory, FourRanksOf16GiBHoldOpenSora) {
  for (const Precision& precision : {bf16, f32}) {
    DeviceMap map;
    const MemoryPlan memory = open_sora(4, {16 * gib}, precision, &map);
    EXPECT_TRUE(memory.fits());
    EXPECT_FALSE(memory.in_turn);
    EXPECT_EQ(to_string(map), "0-5:0,6-11:1,12-17:2,18-23:3");
    // The encoder has 4.76 thousand million parameters, the transformer 760 million.
    std::int64_t text = 0;
    for (const RankMemory& rank : memory.ranks) {
      text += rank.text.weights;
      EXPECT_NEAR(double(rank.denoise.weights), 760e6 * double(precision.size()), 20e6);
      EXPECT_NEAR(double(rank.decode.weights), 49.5e6 * double(precision.size()), 2e6);
    }
    EXPECT_NEAR(double(text), 4762e6 * double(precision.size()), 20e6);
    EXPECT_EQ(what_is_over(memory), "");
    EXPECT_THAT(describe(memory), HasSubstr("memory: ranks 1-3 "));
    EXPECT_THAT(describe(memory), HasSubstr(" of 16.00 GiB (text "));
  }
}

TEST(Memory, OneRankOf8GiBIsTooSmall) {
  const MemoryPlan memory = open_sora(1, {8 * gib}, bf16);
  EXPECT_FALSE(memory.fits());
  const std::string over = what_is_over(memory);
  EXPECT_THAT(over, HasSubstr("rank 0 needs 8.9"));
  EXPECT_THAT(over, HasSubstr("while it encodes prompts"));
  EXPECT_THAT(over, HasSubstr("its limit is 8.00 GiB"));
  EXPECT_TRUE(open_sora(2, {8 * gib}, bf16).fits());
  EXPECT_FALSE(open_sora(2, {8 * gib}, f32).fits());
  EXPECT_TRUE(open_sora(1, {9 * gib}, bf16).fits());
}

// One GPU, 49 frames of 480 x 720, guidance, T5-XXL.
MemoryPlan cogvideox_on_gpu(const CogVideoXConfig& config, const Precision& precision,
                            std::int64_t limit) {
  MemoryPlan memory;
  memory.program = program_bytes_on_gpu;
  memory.limits = limits_of_ranks({limit}, 1);
  const T5Config t5 = t5_xxl();
  const Plan plan = make_plan({}, {24, 1, 1, {}}, 1);
  const DenoiseSizes sizes{{13, 30, 45},     226, 2, config.heads, 64, config.layers,
                           precision.size(), 64};
  const ClipCost cost = cogvideox_cost(plan, config, {}, sizes, {13, 60, 90}, 13, 1, precision);
  memory.ranks.push_back({text_memory(plan, t5, 226, precision).front(), cost.ranks[0].denoise,
                          cost.ranks[0].decode, 0});
  take_turns(memory);
  return memory;
}

TEST(Memory, CogVideoX2bFitsAGpuOf16GiBAnd5bOneOf24GiB) {
  const Precision f16_gpu{DType::float16, DType::float16, true};
  const Precision bf16_gpu{DType::bfloat16, DType::bfloat16, true};
  CogVideoXConfig larger;  // CogVideoX-5b
  larger.heads = 48;
  larger.layers = 42;
  larger.rotary = true;
  const MemoryPlan small = cogvideox_on_gpu({}, f16_gpu, 16 * gib);
  EXPECT_EQ(what_is_over(small), "") << describe(small);
  const MemoryPlan large = cogvideox_on_gpu(larger, bf16_gpu, 24 * gib);
  EXPECT_EQ(what_is_over(large), "") << describe(large);
}

TEST(Memory, WithoutALimitEverythingFits) {
  const MemoryPlan memory = open_sora(1, {}, f32);
  EXPECT_TRUE(memory.fits());
  EXPECT_FALSE(memory.in_turn);
  EXPECT_THAT(describe(memory), Not(HasSubstr("iB of ")));
  DeviceMap with, without;
  open_sora(5, {}, f32, &without);
  open_sora(5, {12 * gib}, f32, &with);
  EXPECT_EQ(to_string(with), to_string(without));
}

TEST(Memory, UnlikeLimitsGiveUnlikeShares) {
  DeviceMap map;
  const std::vector<std::int64_t> limits{8 * gib, 4 * gib, 2 * gib, 4 * gib};
  const MemoryPlan memory = open_sora(4, limits, bf16, &map);
  EXPECT_TRUE(memory.fits());
  std::vector<int> layers(4, 0);
  for (const int rank : map.layer_rank) ++layers[std::size_t(rank)];
  EXPECT_GT(layers[0], layers[1]);
  EXPECT_GT(layers[1], layers[2]);
  EXPECT_NEAR(layers[1], layers[3], 1);
  for (int r = 0; r < 4; ++r) EXPECT_LE(memory.peak(r), limits[std::size_t(r)]);
  expect_error(
      Status::unavailable, [&] { limits_of_ranks(limits, 3); },
      "device.memory-limit: 4 sizes are given, and the job has 3 ranks");
}

TEST(Memory, RanksWithoutRoomGetNoLayers) {
  DeviceMap map = balanced_device_map(10, 100, 70, 3, {-5, 700, 500});
  EXPECT_EQ(map.embedding_rank, 1);
  EXPECT_EQ(to_string(map), "0-5:1,6-9:2");
  map = balanced_device_map(10, 100, 70, 3, {400, 0, 800});
  EXPECT_EQ(map.embedding_rank, 0);
  EXPECT_EQ(to_string(map), "0-2:0,3-9:2");
  // Too little everywhere: spread as if there were no limits, to be refused with the numbers.
  EXPECT_EQ(to_string(balanced_device_map(4, 100, 70, 2, {10, 20})), "0-1:0,2-3:1");
}

TEST(Memory, EqualRoomsChangeNothing) {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    EXPECT_EQ(to_string(balanced_device_map(24, 385'892'352, 263'192'576, ranks)),
              to_string(balanced_device_map(24, 385'892'352, 263'192'576, ranks,
                                            std::vector<std::int64_t>(std::size_t(ranks), gib))))
        << ranks;
  }
}

TEST(Memory, TransformerAndDecoderTakeTurnsWhereTheyMust) {
  // 100 MiB and 60 MiB of weights, little text.
  constexpr std::int64_t mib = 1 << 20;
  MemoryPlan memory;
  memory.program = 10 * mib;
  memory.ranks = {{{20 * mib, 0}, {100 * mib, 10 * mib}, {60 * mib, 20 * mib}, mib}};
  EXPECT_EQ(memory.denoise(0), (10 + 1 + 100 + 11 + 60) * mib);
  EXPECT_EQ(memory.decode(0), (10 + 1 + 60 + 22 + 100) * mib);
  memory.limits = {200 * mib};
  take_turns(memory);
  EXPECT_FALSE(memory.in_turn);
  memory.limits = {150 * mib};
  take_turns(memory);
  EXPECT_TRUE(memory.in_turn);
  EXPECT_TRUE(memory.fits());
  EXPECT_EQ(memory.peak(0), (10 + 1 + 100 + 11) * mib);
  EXPECT_THAT(describe(memory), HasSubstr("take turns"));
  memory.limits = {121 * mib};
  EXPECT_THAT(what_is_over(memory), HasSubstr("while it denoises (weights 100.00 MiB"));
}

TEST(Memory, SplitStagesStandOnRanksOfTheirOwn) {
  ParallelRequest request;
  request.mode = Mode::split;
  const MemoryPlan memory = open_sora(4, {}, bf16, nullptr, request);
  EXPECT_GT(memory.ranks[0].text.weights, 8 * gib);
  EXPECT_EQ(memory.ranks[0].denoise.weights + memory.ranks[0].decode.weights, 0);
  EXPECT_EQ(memory.ranks[1].text.weights + memory.ranks[1].decode.weights, 0);
  EXPECT_EQ(memory.ranks[1].denoise.weights, memory.ranks[2].denoise.weights);
  EXPECT_EQ(memory.ranks[3].text.weights + memory.ranks[3].denoise.weights, 0);
  EXPECT_GT(memory.ranks[3].decode.weights, 0);
}

TEST(Memory, WorkFallsWithTheNumberOfRanks) {
  std::int64_t before = 0;
  for (const int ranks : {16, 8, 4, 2, 1}) {
    const MemoryPlan memory = open_sora(ranks, {}, bf16);
    EXPECT_GT(memory.ranks[0].denoise.working, before) << ranks;
    before = memory.ranks[0].denoise.working;
  }
}

TEST(Memory, MoreRanksThanFrames) {
  const MemoryPlan memory = open_sora(32, {}, bf16);
  for (const RankMemory& rank : memory.ranks) EXPECT_GT(rank.denoise.working, 0);
}

TEST(Cost, CogVideoXByRanksAndBranches) {
  CogVideoXConfig config;
  config.heads = 48;
  config.layers = 42;
  const DenoiseSizes sizes{{13, 30, 45}, 226, 2, 48, 64, 42, 2, 64};
  const Shape latents{13, 60, 90};
  for (const int ranks : {1, 2, 3, 7, 8}) {
    const Plan plan = make_plan({}, {24, 385'892'352, 263'192'576, {}}, ranks);
    const ClipCost cost = cogvideox_cost(plan, config, {}, sizes, latents, 13, 1, bf16);
    ASSERT_EQ(cost.ranks.size(), std::size_t(ranks));
    std::int64_t pixels = 0;
    for (const ClipCost::OfRank& rank : cost.ranks) {
      pixels += rank.images.extent[1] * rank.images.extent[2];
      EXPECT_GT(rank.denoise.working, 0);
      EXPECT_GT(rank.flops, 0);
      EXPECT_EQ(rank.sent_bytes > 0, ranks > 1);
    }
    EXPECT_EQ(pixels, 60 * 90);
    if (ranks == 1) {
      // 17,776 tokens of 3072 channels in two branches are 208 MiB; ten such beside one another.
      EXPECT_NEAR(double(cost.ranks[0].denoise.working), 10 * 2 * 17776.0 * 3072 * 2, 250e6);
      // Eight frames of 480 x 720 pixels of 256 channels are 1.4 GB, and there are several.
      EXPECT_GT(cost.ranks[0].decode.working, 6 * gib);
    }
  }
}

}  // namespace
}  // namespace reelmesh
