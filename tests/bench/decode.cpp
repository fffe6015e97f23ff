// Times the decoder of a checkpoint's autoencoder on random latents, and says what memory it took:
//   mpirun -n 4 build/tests/bench_decode VAE_DIR FRAMES ROWS COLUMNS float32|bfloat16 [TIMES]
// FRAMES, ROWS and COLUMNS are of the latents. One line a repetition, from rank 0.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include "base/trace.hpp"
#include "models/cogvideox/decoder.hpp"

namespace {

using namespace reelmesh;

// Resident bytes of this process: now, or at most since the peak was last forgotten.
std::int64_t resident(const char* field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::int64_t kibibytes = 0;
  while (status >> word) {
    if (word == field) status >> kibibytes;
  }
  return kibibytes * 1024;
}

void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

}  // namespace

int main(int argc, char** argv) {
  const comm::Environment mpi;
  const auto world = comm::Group::world();
  if (argc < 6) {
    std::fputs("bench_decode VAE_DIR FRAMES ROWS COLUMNS float32|bfloat16 [TIMES]\n", stderr);
    return 64;
  }
  const std::filesystem::path folder = argv[1];
  const Shape shape{std::stoll(argv[2]), 16, std::stoll(argv[3]), std::stoll(argv[4])};
  const DType dtype = std::string(argv[5]) == "bfloat16" ? DType::bfloat16 : DType::float32;
  const auto config = CogVideoXVaeConfig::read(Config::read(folder / "config.json"));
  const CogVideoXDecoder decoder(Checkpoint::open(folder, "diffusion_pytorch_model"), config,
                                 dtype);
  const Layout layout = Layout::cut(shape, 2, world.size());
  Sharded latents{Tensor::empty(own_box(layout, world).extent, DType::float32), layout, world};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& x : latents.local.span<float>()) x = normal(random);

  for (int i = 0; i < (argc > 6 ? std::atoi(argv[6]) : 1); ++i) {
    const std::int64_t before = resident("VmRSS:"), flops = trace::recorder().flops;
    forget_peak();
    world.barrier();
    const std::int64_t start = trace::now_ns();
    const double cpu = cpu_seconds();
    const Sharded video = decoder.pixels(latents);
    const double own_cpu = cpu_seconds() - cpu;
    world.barrier();
    const double seconds = static_cast<double>(trace::now_ns() - start) * 1e-9;
    const auto work = static_cast<double>(trace::recorder().flops - flops);
    const double memory = static_cast<double>(resident("VmHWM:") - before) / 1048576.0;
    std::uint64_t hash = 1469598103934665603U;  // FNV-1a
    for (const std::uint8_t byte : video.local.span<std::uint8_t>()) {
      hash = (hash ^ byte) * 1099511628211U;
    }
    const double all_cpu = world.sum(own_cpu), all_work = world.sum(work);
    const double most = world.max(memory), least = world.min(memory);
    if (world.rank() == 0) {
      fmt::print(
          "{} ranks: {:.2f} s, cpu {:.2f} s, {:.2f} TFLOP, {:.1f} GFLOP/s, "
          "memory {:.0f} to {:.0f} MiB a rank, first rank's pixels {:016x}\n",
          world.size(), seconds, all_cpu, all_work * 1e-12, all_work / seconds * 1e-9, least, most,
          hash);
      std::fflush(stdout);
    }
  }
  return 0;
}
