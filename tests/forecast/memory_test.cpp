// Planned memory of released models, from their configurations without weights.
#include <gmock/gmock.h>
#include <oneapi/dnnl/dnnl_version.h>

#include "forecast/plan_job.hpp"
#include "plan/describe.hpp"
#include "support/dry_workloads.hpp"
#include "support/expect_error.hpp"

namespace reelmesh {
namespace {

using test::expect_error;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t gib = std::int64_t{1} << 30;
// An upper bound for all processors, so that the figures do not depend on the one that runs this.
constexpr auto any = PackedFor::any_processor;
const Precision bf16{DType::bfloat16, DType::bfloat16, false, any},
    f32{DType::float32, DType::float32, false, any};

T5Config t5_xxl() {
  T5Config c;
  c.d_model = 4096;
  c.d_ff = 10240;
  c.num_layers = 24;
  c.num_heads = 64;
  return c;
}

// T5-XXL, STDiT-XL/2 and the image autoencoder, 16 frames of 256 x 256. limits: none, one value for
// all ranks, or one per rank.
Plan open_sora(int ranks, std::vector<std::int64_t> limits, const Precision& precision,
               const ParallelRequest& request = {}) {
  constexpr std::int64_t tokens = 120;
  PlanMachine machine;
  machine.ranks = ranks;
  if (limits.size() == 1) limits.assign(std::size_t(ranks), limits.front());
  machine.memory_limits.values = std::move(limits);
  static const Family& family =
      *test::family_of<OpenSora>(test::opensora_folder({}, test::released_vae(), t5_xxl()));
  const Clip clip = test::dry_clip({16, 32, 32}, 4, 16, 2, 1, tokens);
  return make_plan(test::dry_workload(family, clip, 1, precision), machine, request);
}

TEST(Memory, FourRanksOf16GiBHoldOpenSora) {
  for (const Precision& precision : {bf16, f32}) {
    const Plan plan = open_sora(4, {16 * gib}, precision);
    const MemoryPlan& memory = plan.memory;
    EXPECT_TRUE(memory.fits());
    EXPECT_FALSE(memory.offloads);
    EXPECT_EQ(to_string(plan.device_map), "0-5:0,6-11:1,12-17:2,18-23:3");
    // The encoder has 4.76 billion parameters, of which 132 million, its embedding, stay in the
    // file; the transformer has 760 million.
    std::int64_t text = 0;
    for (const RankMemory& rank : memory.ranks) {
      text += rank.text.weights;
      EXPECT_NEAR(double(rank.denoise.weights), 760e6 * double(precision.size()), 20e6);
      // Convolutions of oneDNN 3 for AVX2 pad 512 channels to 528.
      const bool padded = DNNL_VERSION_MAJOR >= 3 && precision.products == DType::float32;
      EXPECT_NEAR(double(rank.decode.weights),
                  49.5e6 * double(precision.size()) * (padded ? 528. / 512 : 1), 2e6);
    }
    // Linear tiles have 192 columns: the last tile of 4096 has 64, which may be padded to 96.
    EXPECT_NEAR(double(text), 4648e6 * double(precision.size()), 20e6);
    EXPECT_EQ(excess_text(memory), "");
    EXPECT_THAT(plan_text(describe(memory)), HasSubstr("memory: ranks 0-3 "));
    EXPECT_THAT(plan_text(describe(memory)), HasSubstr(" of 16.00 GiB (text "));
  }
}

TEST(Memory, OneRankOf8GiBIsTooSmallIfWeightsAreReplicated) {
  ParallelRequest replicated;
  replicated.weights = WeightsChoice::replicated;
  const MemoryPlan memory = open_sora(1, {8 * gib}, bf16, replicated).memory;
  EXPECT_FALSE(memory.fits());
  const std::string over = excess_text(memory);
  EXPECT_THAT(over, HasSubstr("rank 0 needs 8.73 GiB"));
  EXPECT_THAT(over, HasSubstr("while it encodes prompts"));
  EXPECT_THAT(over, HasSubstr("its limit is 8.00 GiB"));
  EXPECT_TRUE(open_sora(2, {8 * gib}, bf16, replicated).memory.fits());
  EXPECT_FALSE(open_sora(2, {8 * gib}, f32, replicated).memory.fits());
  EXPECT_TRUE(open_sora(1, {9 * gib + gib / 8}, bf16, replicated).memory.fits());
}

// Of T5-XXL 19 of 24 layers stay; as few as possible are fetched from the host.
TEST(Memory, LayersOfTheTextEncoderGoToTheHostWhereRanksHaveNoRoom) {
  const Plan plan = open_sora(1, {8 * gib}, bf16);
  EXPECT_TRUE(plan.memory.fits()) << plan_text(describe(plan.memory));
  EXPECT_EQ(plan.weights.residence, Residence::replicated) << "the transformer has room";
  EXPECT_EQ(to_string(plan.device_map), "0-20:0,21-23:0@host");
  const Plan two = open_sora(2, {8 * gib, 3 * gib}, f32);
  EXPECT_TRUE(two.memory.fits()) << plan_text(describe(two.memory));
  for (const std::int64_t limit : two.memory.limits) EXPECT_LE(limit, 8 * gib);
  ParallelRequest host;
  host.text_weights = WeightsChoice::host;
  EXPECT_EQ(to_string(open_sora(2, {}, bf16, host).device_map), "0-11:0@host,12-23:1@host");
}

// 49 frames of 480 x 720, guidance, T5-XXL.
Workload cogvideox(const CogVideoXConfig& config, const Precision& precision) {
  const Family& family = *test::family_of<CogVideoX>(test::cogvideox_folder(config, {}, t5_xxl()));
  return test::dry_workload(family, test::cogvideox_clip(config, {13, 60, 90}, 2, 226), 1,
                            precision);
}

// One GPU.
MemoryPlan cogvideox_on_gpu(const CogVideoXConfig& config, const Precision& precision,
                            std::int64_t limit) {
  PlanMachine machine;
  machine.program = program_bytes_on_gpu;
  machine.count_waiting_embeddings = false;
  machine.memory_limits.values = {limit};
  return make_plan(cogvideox(config, precision), machine, {}).memory;
}

TEST(Memory, CogVideoX2bFitsAGpuOf16GiBAnd5bOneOf24GiB) {
  const Precision f16_gpu{DType::float16, DType::float16, true};
  const Precision bf16_gpu{DType::bfloat16, DType::bfloat16, true};
  CogVideoXConfig larger;  // CogVideoX-5b
  larger.heads = 48;
  larger.layers = 42;
  larger.rotary = true;
  const MemoryPlan small = cogvideox_on_gpu({}, f16_gpu, 16 * gib);
  EXPECT_EQ(excess_text(small), "") << plan_text(describe(small));
  const MemoryPlan large = cogvideox_on_gpu(larger, bf16_gpu, 24 * gib);
  EXPECT_EQ(excess_text(large), "") << plan_text(describe(large));
}

// CogVideoX-5b, 49 frames of 480 x 720, bfloat16, with T5-XXL.
Plan cogvideox_5b_on_gpus(int ranks, std::vector<std::int64_t> limits,
                          const ParallelRequest& request = {}, std::vector<int> node_of = {}) {
  const Precision bf16_gpu{DType::bfloat16, DType::bfloat16, true};
  CogVideoXConfig config;
  config.heads = 48;
  config.layers = 42;
  config.rotary = true;
  PlanMachine machine;
  machine.ranks = ranks;
  machine.node_of = std::move(node_of);
  machine.program = program_bytes_on_gpu;
  machine.host_program = host_program_bytes_of_gpu;
  machine.count_waiting_embeddings = false;
  if (limits.size() == 1) limits.assign(std::size_t(ranks), limits.front());
  machine.memory_limits.values = std::move(limits);
  return make_plan(cogvideox(config, bf16_gpu), machine, request);
}

TEST(Memory, WeightsOf5bGoWhereTheyFit) {
  constexpr double all = 10.37 * gib;
  struct Row {
    int ranks;
    std::vector<std::int64_t> limits;
    Residence residence;
    double kept;  // of `all`, on the rank with the most
  };
  for (const auto& [ranks, limits, residence, kept] :
       {Row{1, {24 * gib}, Residence::replicated, 1}, Row{1, {12 * gib}, Residence::host, 0.28},
        Row{2, {10 * gib}, Residence::sharded, 0.5}, Row{4, {8 * gib}, Residence::sharded, 0.25},
        Row{4, {8 * gib, 8 * gib, 12 * gib, 16 * gib}, Residence::sharded, 0.42}}) {
    const Plan plan = cogvideox_5b_on_gpus(ranks, limits);
    const WeightPlan& weights = plan.weights;
    EXPECT_TRUE(plan.memory.fits()) << plan_text(describe(plan.memory));
    EXPECT_EQ(name_of(weights.residence), std::string(name_of(residence)));
    EXPECT_NEAR(double(weights.all), all, 0.01 * all);
    EXPECT_NEAR(double(weights.kept), kept * all, 0.05 * all) << ranks;
    EXPECT_LE(double(weights.fetched), double(weights.all));
  }
}

// Ranks with more room have larger shares, and nobody exceeds its limit.
TEST(Memory, SharesFollowTheRoomOfRanks) {
  const Plan plan = cogvideox_5b_on_gpus(4, {8 * gib, 8 * gib, 12 * gib, 16 * gib});
  ASSERT_EQ(plan.weights.shares.size(), 1U);
  const RankWeights& shares = plan.weights.shares.front();
  EXPECT_LT(shares[0], 0.6 * shares[2]);
  EXPECT_LT(shares[2], 0.8 * shares[3]);
  EXPECT_TRUE(plan.memory.fits()) << plan_text(describe(plan.memory));
  std::int64_t kept = 0;
  for (const double part : plan.weights.kept_parts(0, 4)) {
    kept += static_cast<std::int64_t>(part * double(plan.weights.all));
  }
  EXPECT_NEAR(double(kept), double(plan.weights.all), 10);
}

TEST(Memory, WeightsAreWhereTheyAreAskedToBe) {
  ParallelRequest request;
  request.weights = WeightsChoice::sharded;
  EXPECT_EQ(cogvideox_5b_on_gpus(4, {}, request).weights.residence, Residence::sharded);
  EXPECT_EQ(to_string(cogvideox_5b_on_gpus(2, {}, request).device_map), "0-11:0,12-23:1");
  request.weights = WeightsChoice::host;
  const Plan host = cogvideox_5b_on_gpus(2, {}, request);
  EXPECT_EQ(host.weights.kept, 0) << "without limits nothing stays";
  EXPECT_TRUE(host.memory.unloads_decoder);
  EXPECT_EQ(to_string(host.device_map), "0-11:0@host,12-23:1@host");
  request.decode_weights = WeightsChoice::replicated;
  EXPECT_FALSE(cogvideox_5b_on_gpus(2, {}, request).memory.unloads_decoder);
  request.weights = WeightsChoice::replicated;
  EXPECT_FALSE(cogvideox_5b_on_gpus(4, {8 * gib}, request).memory.fits());
}

// Ranks of a node have one copy of the weights that are on their host.
TEST(Memory, WeightsOnTheHostCountThere) {
  ParallelRequest request;
  request.replicas = 1;
  const double without =
      double(cogvideox_5b_on_gpus(2, {}, request).memory.host_peak(0) - host_program_bytes_of_gpu);
  EXPECT_GT(without, 0);
  EXPECT_LT(without, double(gib));
  request.weights = WeightsChoice::host;
  request.text_weights = WeightsChoice::replicated;
  constexpr double all = 10.37 * gib;
  for (const auto& [nodes, copies] : {std::pair(std::vector{0, 0}, 1), {{0, 1}, 2}}) {
    const MemoryPlan memory = cogvideox_5b_on_gpus(2, {}, request, nodes).memory;
    const double host =
        double(memory.host_peak(0) + memory.host_peak(1)) - 2 * double(host_program_bytes_of_gpu);
    EXPECT_GE(host, copies * all - 0.01 * all);
    EXPECT_LE(host, copies * all + 2 * without);
  }
}

TEST(Memory, WithoutALimitEverythingFits) {
  const MemoryPlan memory = open_sora(1, {}, f32).memory;
  EXPECT_TRUE(memory.fits());
  EXPECT_FALSE(memory.offloads);
  EXPECT_THAT(plan_text(describe(memory)), Not(HasSubstr("iB of ")));
  EXPECT_EQ(to_string(open_sora(5, {12 * gib}, f32).device_map),
            to_string(open_sora(5, {}, f32).device_map));
}

TEST(Memory, UnlikeLimitsGiveUnlikeShares) {
  const std::vector<std::int64_t> limits{8 * gib, 4 * gib, 2 * gib, 4 * gib};
  const Plan plan = open_sora(4, limits, bf16);
  EXPECT_TRUE(plan.memory.fits());
  std::vector<int> layers(4, 0);
  for (const int rank : plan.device_map.layer_rank) ++layers[std::size_t(rank)];
  EXPECT_GT(layers[0], layers[1]);
  EXPECT_GT(layers[1], layers[2]);
  EXPECT_NEAR(layers[1], layers[3], 1);
  for (int r = 0; r < 4; ++r) EXPECT_LE(plan.memory.peak(r), limits[std::size_t(r)]);
  Job job;
  job.memory_limits = limits;
  expect_error(
      Status::unavailable, [&] { plan_conditions(job, 3, 1, {}, DType::float32, false); },
      "device.memory-limit: found 4 sizes, expected 1, or 3, one for each rank");
  job.memory_limits = {gib};
  EXPECT_EQ(plan_conditions(job, 3, 1, {}, DType::float32, false).machine.memory_limits.values,
            (std::vector<std::int64_t>(3, gib)));
}

TEST(Memory, SplitStagesStandOnRanksOfTheirOwn) {
  ParallelRequest request;
  request.mode = Mode::split;
  const MemoryPlan memory = open_sora(4, {}, bf16, request).memory;
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
    const MemoryPlan memory = open_sora(ranks, {}, bf16).memory;
    EXPECT_GT(memory.ranks[0].denoise.working, before) << ranks;
    before = memory.ranks[0].denoise.working;
  }
}

TEST(Memory, MoreRanksThanFrames) {
  const MemoryPlan memory = open_sora(32, {}, bf16).memory;
  for (const RankMemory& rank : memory.ranks) EXPECT_GT(rank.denoise.working, 0);
}

TEST(Cost, CogVideoXByRanksAndBranches) {
  CogVideoXConfig config;
  config.heads = 48;
  config.layers = 42;
  for (const int ranks : {1, 2, 3, 7, 8}) {
    PlanMachine machine;
    machine.ranks = ranks;
    const Plan plan = make_plan(cogvideox(config, bf16), machine, {});
    const ClipPlan& size = plan.sizes.front();
    ASSERT_EQ(size.ranks.size(), std::size_t(ranks));
    std::int64_t pixels = 0;
    for (int r = 0; r < ranks; ++r) {
      const ClipPlan::OfRank& rank = size.ranks[std::size_t(r)];
      pixels += plan.decoded_latents(0, r).numel() / 13;
      EXPECT_GT(rank.denoise.working, 0);
      EXPECT_GT(rank.step.flops, 0);
      EXPECT_EQ(rank.step.sent_bytes > 0, ranks > 1);
    }
    EXPECT_EQ(pixels, 60 * 90);
    if (ranks > 1) continue;
    // 17,776 tokens × 3072 channels × 2 branches are 208 MiB; about ten such tensors at once.
    EXPECT_NEAR(double(size.ranks[0].denoise.working), 10 * 2 * 17776.0 * 3072 * 2, 250e6);
    // 8 frames × 480 × 720 pixels × 256 channels are 1.4 GB, and several such tensors are alive.
    EXPECT_GT(size.ranks[0].decode.working, 6 * gib);
  }
}

// T2V-1.3B and T2V-14B, 81 frames of 480 x 832: 21 x 30 x 52 tokens. Heads may be fewer than ranks.
TEST(Cost, WanByRanksAndBranches) {
  for (const bool large : {false, true}) {
    WanConfig config;
    config.head_channels = 128;
    config.heads = large ? 40 : 12;
    config.layers = large ? 40 : 30;
    config.hidden_channels = large ? 13824 : 8960;
    const Family& family = *test::family_of<Wan>(test::wan_folder(config, {}, t5_xxl()));
    const Clip clip = test::dry_clip({21, 60, 104}, 16, 81, 2, 2, WanConfig::text_tokens);
    const double d = double(config.channels()), n = 21 * 30 * 52,
                 hidden = double(config.hidden_channels);
    for (const int ranks : {1, 5, 7, 8, 16}) {
      PlanMachine machine;
      machine.ranks = ranks;
      for (const int ulysses : {0, ranks}) {
        ParallelRequest request;
        if (ulysses > 0) {
          request.cfg = 1;
          request.ulysses = ulysses;
        }
        const Plan plan = make_plan(test::dry_workload(family, clip, 1, bf16), machine, request);
        const ClipPlan& size = plan.sizes.front();
        ASSERT_EQ(size.ranks.size(), std::size_t(ranks));
        double flops = 0;
        std::int64_t pixels = 0;
        for (int r = 0; r < ranks; ++r) {
          const ClipPlan::OfRank& rank = size.ranks[std::size_t(r)];
          EXPECT_GT(rank.denoise.working, 0) << ranks;
          flops += double(rank.step.flops);
          pixels += plan.decoded_latents(0, r).numel() / 21;
        }
        EXPECT_EQ(pixels, 60 * 104);
        // A forward pass: products with weights, attention to the video and to the text.
        const double forward = double(config.layers) * (12 * n * d * d + 4 * n * d * hidden +
                                                        4 * n * n * d + 4 * n * 512 * d);
        EXPECT_NEAR(flops, 2 * forward, 0.01 * 2 * forward) << ranks;
      }
    }
  }
}

// The autoencoder's memory does not grow with the length of a clip, apart from the video itself.
TEST(Memory, WanDecodesLongClipsFrameByFrame) {
  WanVaeConfig ti2v;
  ti2v.base_channels = 160;
  ti2v.decoder_base_channels = 256;
  ti2v.latent_channels = 48;
  ti2v.shortcuts = true;
  ti2v.patch = 2;
  ti2v.latents_mean.assign(48, 0);
  ti2v.latents_std.assign(48, 1);
  for (const WanVaeConfig& vae : {WanVaeConfig{}, ti2v}) {
    WanConfig config;
    config.in_channels = config.out_channels = vae.latent_channels;
    const Family& family = *test::family_of<Wan>(test::wan_folder(config, vae, t5_xxl()));
    const auto working = [&](std::int64_t latents) {
      const std::int64_t frames = WanVaeConfig::decoded_frames(latents),
                         side = vae.pixels_per_latent();
      const Clip clip = test::dry_clip({latents, 60, 104}, vae.latent_channels, frames, 2, 2,
                                       WanConfig::text_tokens);
      const Plan plan = make_plan(test::dry_workload(family, clip, 1, bf16), PlanMachine{}, {});
      return plan.sizes.front().ranks[0].decode.working - frames * 60 * 104 * side * side * 3;
    };
    EXPECT_NEAR(double(working(41)), double(working(11)), 0.02 * double(working(11)));
  }
}

}  // namespace
}  // namespace reelmesh
