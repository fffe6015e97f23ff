// cuDNN has plans for every convolution and attention of both families' released models, on GPUs
// that are only described: needs the cuDNN library, but no GPU. Makes plans for a few sizes on one
// or two GPUs; with REELMESH_LONG=1 for all.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "models/autoencoder/decoder.hpp"
#include "models/autoencoder/encoder.hpp"
#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/encoder.hpp"
#include "models/common/asked.hpp"
#include "ops/cuda/convolution.hpp"
#include "ops/cuda/fused_attention.hpp"
#include "ops/cuda/plan_checks.hpp"
#include "support/long.hpp"

namespace reelmesh::gpu {
namespace {

struct Gpu {
  const char* name;
  int capability, processors, shared_kib, blocks, threads;  // blocks and threads of a processor
  int l2_mib, memory_gb;

  // The members that cuDNN 9.19 requires.
  std::string description() const {
    const nlohmann::json properties{{"deviceName", name},
                                    {"deviceVer", 10 * capability},
                                    {"driverVer", 13000},
                                    {"cudaDeviceId", 0},
                                    {"pciDeviceId", 0},
                                    {"multiProcessorCount", processors},
                                    {"maxGridSize", {2147483647, 65535, 65535}},
                                    {"maxBlockSize", {1024, 1024, 64}},
                                    {"maxThreadsPerBlock", 1024},
                                    {"maxThreadsPerSM", threads},
                                    {"maxCtasPerSM", blocks},
                                    {"warpSize", 32},
                                    {"regsPerBlock", 65536},
                                    {"maxRegistersPerSM", 65536},
                                    {"maxSharedMemoryPerBlock", 48 << 10},
                                    {"maxSharedMemoryPerBlockOptin", (shared_kib - 1) << 10},
                                    {"reservedSharedMemoryPerBlock", capability < 80 ? 0 : 1024},
                                    {"totalGlobalMem", std::int64_t{1000000000} * memory_gb},
                                    {"l2CacheSize", l2_mib << 20},
                                    {"smClockRateKHz", 1900000},
                                    {"memClockRateKHz", 2600000},
                                    {"isTccDriver", 0},
                                    {"supportCoopLaunch", 1}};
    return properties.dump();
  }
};

std::vector<Gpu> gpus() {
  const std::vector<Gpu> some{{"A100", 80, 108, 164, 32, 2048, 40, 80},
                              {"H100", 90, 132, 228, 32, 2048, 50, 80}};
  if (!test::tests_are_long()) return some;
  std::vector<Gpu> every{{"T4", 75, 40, 65, 16, 1024, 4, 16},
                         {"L40", 89, 142, 100, 24, 1536, 96, 48},
                         {"B200", 100, 148, 228, 32, 2048, 126, 180},
                         {"RTX 5090", 120, 170, 100, 24, 1536, 96, 32}};
  every.insert(every.end(), some.begin(), some.end());
  return every;
}

class CudnnPlans : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string& why = why_no_fused_attention(); !why.empty()) GTEST_SKIP() << why;
  }
};

// Of one tile or frame.
struct Convolved {
  Shape weight;  // as in checkpoints: [out, in, (kt,) kernel, kernel]
  std::int64_t stride = 1;
  auto operator<=>(const Convolved&) const = default;
};

std::set<Convolved> convolutions() {
  std::set<Convolved> found;
  const auto add = [&](const ExpectedShapes& tensors) {
    for (const auto& [name, shape] : tensors) {
      if (shape.size() < 4) continue;
      found.insert({shape, name.find("downsamplers") == std::string::npos ? 1 : 2});
    }
  };
  add(tensors_of<CogVideoXDecoder>(CogVideoXVaeConfig()));
  add(tensors_of<CogVideoXEncoder>(CogVideoXVaeConfig()));
  const OpenSoraVaeConfig vae{.image = {}, .temporal = TemporalAutoencoderConfig{}};
  add(tensors_of<OpenSoraDecoder>(vae));
  add(tensors_of<OpenSoraEncoder>(vae));
  return found;
}

TEST_F(CudnnPlans, ThereIsOneForEachConvolution) {
  const std::set<Convolved> convolved = convolutions();
  ASSERT_GT(convolved.size(), 20U);
  using Numbers = std::vector<std::int64_t>;
  const Numbers frames =
      test::tests_are_long() ? Numbers{1, 2, 3, 4, 5, 8, 9, 17, 20} : Numbers{1, 9};
  using Types = std::vector<DType>;
  const Types types = test::tests_are_long()
                          ? Types{DType::float32, DType::bfloat16, DType::float16}
                          : Types{DType::bfloat16};
  const auto padded = [](std::int64_t channels) { return (channels + 7) / 8 * 8; };
  for (const Gpu& gpu : gpus()) {
    const dnn::Target target(gpu.description());
    for (const auto& [weight, stride] : convolved) {
      const std::int64_t kt = weight.size() == 5 ? weight[2] : 1, kernel = weight.back();
      const ops::Window window{.kernel = kernel, .stride = stride};
      const std::int64_t out = padded(weight[0]), in = padded(weight[1]), items = 16;
      for (const DType dtype : types) {
        if (gpu.capability < 80 && dtype == DType::bfloat16) continue;
        for (const std::int64_t f : frames) {
          const Shape x{items, f + kt - 1, window.reach(Convolution::tile_rows),
                        window.reach(Convolution::tile_columns), in};
          EXPECT_NO_THROW(
              convolution_engines(target, {dtype, x, {out, kt, kernel, kernel, in}, stride}, 1))
              << to_string(weight) << " with stride " << stride << " of " << f << " frames in "
              << name_of(dtype) << " on " << gpu.name;
        }
      }
    }
  }
}

// cuDNN's engine 62 has kernels for Hopper (their settings have clusters), and is not proposed for
// an A100; 22, 23 and 45 have the A100's. Which one a call uses is measured (measure_convolution),
// so the Hopper engine must be among the proposals that are.
TEST_F(CudnnPlans, HoppersEngineIsProposedForEachConvolution) {
  constexpr std::int64_t hoppers = 62, items = 16, frames = 8;
  constexpr std::size_t measured = 16;
  // cuDNN 9.19 prefers the A100's where few channels result (tiles of Hopper's have 64 at least),
  // and, though these are 40 % of the decoder's operations, for 128 channels and three frames.
  const std::set<Convolved> known{{{1, 4, 1, 1, 1}},     {{3, 64, 3, 3}},      {{3, 128, 3, 3, 3}},
                                  {{4, 4, 1, 1}},        {{4, 4, 1, 1, 1}},    {{4, 128, 3, 3, 3}},
                                  {{8, 8, 1, 1}},        {{8, 8, 1, 1, 1}},    {{8, 64, 3, 3}},
                                  {{8, 512, 1, 1, 1}},   {{128, 3, 3, 3, 3}},  {{128, 4, 3, 3, 3}},
                                  {{128, 128, 3, 3, 3}}, {{128, 256, 3, 3, 3}}};
  std::set<Convolved> others_first;
  const auto padded = [](std::int64_t channels) { return (channels + 7) / 8 * 8; };
  for (const Gpu& gpu : gpus()) {
    if (gpu.capability != 80 && gpu.capability != 90) continue;
    const dnn::Target target(gpu.description());
    for (const Convolved& convolved : convolutions()) {
      const auto& [weight, stride] = convolved;
      const std::int64_t kt = weight.size() == 5 ? weight[2] : 1, kernel = weight.back();
      const ops::Window window{.kernel = kernel, .stride = stride};
      const std::int64_t in = padded(weight[1]);
      const Shape x{items, frames + kt - 1, window.reach(Convolution::tile_rows),
                    window.reach(Convolution::tile_columns), in};
      const ConvolutionShape shape{
          DType::bfloat16, x, {padded(weight[0]), kt, kernel, kernel, in}, stride};
      const std::vector<std::int64_t> engines = convolution_engines(target, shape, measured);
      const bool proposed = std::ranges::count(engines, hoppers) > 0;
      EXPECT_EQ(proposed, gpu.capability == 90)
          << to_string(weight) << " with stride " << stride << " on " << gpu.name;
      if (gpu.capability == 90 && engines.front() != hoppers) others_first.insert(convolved);
    }
  }
  for (const Convolved& each : others_first) {
    fmt::print("H100: {} first has an engine of the A100\n", to_string(each.weight));
  }
  EXPECT_EQ(others_first, known);
}

TEST_F(CudnnPlans, ThereIsOneForEachAttention) {
  struct Row {  // of a whole call; ranks have shares of heads and queries
    const char* model;
    std::int64_t sequences, heads, channels, tokens;
  };
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    GTEST_SKIP() << "cuDNN compiles kernels for attention, and loads them into a driver or the "
                    "stand-in of ctest: "
                 << ::dlerror();
  }
  // Of the stand-in: names of kernels since the last call.
  const auto names = reinterpret_cast<const char* (*)()>(::dlsym(driver, "reelmesh_kernel_names"));
  std::vector<Row> rows{{"CogVideoX-2b, 49 frames of 480 x 720", 1, 30, 64, 17776},
                        {"CogVideoX-5b, 49 frames of 480 x 720", 1, 48, 64, 17776},
                        {"CogVideoX1.5-5B, 81 frames of 768 x 1360", 1, 48, 64, 45106},
                        {"Open-Sora 1.2, within frames of 720 x 1280", 16, 16, 72, 3600},
                        {"Open-Sora 1.0, within frames of 512 x 512", 16, 16, 72, 1024}};
  if (!test::tests_are_long()) rows = {rows[1]};
  for (const Gpu& gpu : gpus()) {
    if (gpu.capability < 80) continue;  // own kernels
    if (names != nullptr) names();
    const dnn::Target target(gpu.description());
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
      for (const auto& [model, sequences, heads, channels, tokens] : rows) {
        if (!test::tests_are_long() && (dtype != DType::bfloat16 || gpu.capability != 90)) continue;
        struct Share {
          std::int64_t heads, queries;
        };
        std::vector<Share> shares{{heads, tokens}, {1, 16}};
        if (test::tests_are_long())
          shares.insert(shares.end(), {{heads / 4, tokens / 8}, {3, tokens / 2 + 1}});
        for (const Share& share : shares) {
          const ops::AttentionShape shape{.dtype = dtype,
                                          .sequences = sequences,
                                          .batch = 2,
                                          .heads = share.heads,
                                          .channels = channels,
                                          .queries = share.queries,
                                          .keys = tokens};
          SCOPED_TRACE(fmt::format("{}: {} heads, {} queries in {} on {}", model, share.heads,
                                   share.queries, name_of(dtype), gpu.name));
          EXPECT_NO_THROW(check_attention_plan(target, shape));
          // In a training, with all queries.
          if (share.queries == tokens) {
            EXPECT_NO_THROW(check_attention_plan(target, shape, true));
          }
        }
      }
    }
    if (names == nullptr) continue;
    std::istringstream kernels(names());
    std::set<std::string> found;
    for (std::string name; std::getline(kernels, name);) found.insert(name);
    for (const std::string& name : found) fmt::print("{}: {}\n", gpu.name, name);
    if (gpu.capability != 90) continue;
    // No list of exceptions: all attention with 64 and 72 channels has Hopper's.
    EXPECT_FALSE(found.empty());
    for (const std::string& name : found) EXPECT_NE(name.find("sm90"), name.npos) << name;
  }
}

}  // namespace
}  // namespace reelmesh::gpu
