// Times the decoder of a checkpoint's autoencoder on random latents, and measures its peak memory:
//   mpirun -n 4 build/tests/bench_decode VAE_DIR FRAMES ROWS COLUMNS float32|bfloat16 [TIMES]
// FRAMES, ROWS and COLUMNS are the extents of the latents. Rank 0 prints one line per repetition:
// wall-clock seconds, and CPU seconds of the ranks outside MPI. The latter show the overhead of
// distributing the work even on a machine that runs other programs.
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <random>
#include <string>

#include "base/trace.hpp"
#include "models/cogvideox/decoder.hpp"
#include "models/decode_layouts.hpp"
#include "tensor/memory.hpp"

namespace {

using namespace reelmesh;

// Bytes of a field of /proc/self/status. VmRSS: resident now; VmHWM: peak since
// reset_peak_memory().
std::int64_t resident(const char* field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::int64_t kibibytes = 0;
  while (status >> word) {
    if (word == field) status >> kibibytes;
  }
  return kibibytes * 1024;
}

void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double waited = 0;  // CPU seconds spent waiting for other ranks

struct Waiting {
  double since = processor_seconds();
  ~Waiting() { waited += processor_seconds() - since; }
};

}  // namespace

// Intercepts, by MPI's profiling interface, the calls in which the decoder waits.
int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  const Waiting here;
  return PMPI_Waitall(count, requests, statuses);
}
int MPI_Allreduce(const void* from, void* into, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  const Waiting here;
  return PMPI_Allreduce(from, into, count, type, op, comm);
}

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
  const DecodeLayout layout = test::cogvideox_decode_layout(config, shape, world.size());
  const Layout cut = layout.latents.with_axis(1, shape[1]);
  Sharded latents{Tensor::empty(own_box(cut, world).extent, DType::float32), cut, world};
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  std::normal_distribution<float> normal;
  for (float& x : latents.local.span<float>()) x = normal(random);

  for (int i = 0; i < (argc > 6 ? std::atoi(argv[6]) : 1); ++i) {
    release_free_memory();
    const std::int64_t before = resident("VmRSS:"), flops = trace::recorder().flops;
    const std::int64_t sent = trace::recorder().bytes_sent;
    reset_peak_memory();
    world.barrier();
    const std::int64_t start = trace::now_ns();
    const double processor = processor_seconds();
    waited = 0;
    const Sharded video = decoder.pixels(latents, layout).pixels;
    const double busy = processor_seconds() - processor - waited;
    world.barrier();
    const double seconds = static_cast<double>(trace::now_ns() - start) * 1e-9;
    const double memory = static_cast<double>(resident("VmHWM:") - before) / 1048576.0;
    const double work = world.sum(static_cast<double>(trace::recorder().flops - flops));
    const double all = world.sum(busy), longest = world.max(busy);
    const double bytes =
        world.max(static_cast<double>(trace::recorder().bytes_sent - sent)) / 1048576.0;
    const double most = world.max(memory), least = world.min(memory);
    if (world.rank() != 0) continue;
    fmt::print(
        "{} ranks: {:.2f} s; busy {:.2f} s in all, {:.2f} s the fullest rank; {:.3f} TFLOP, "
        "{:.1f} GFLOP/s of a busy rank; memory {:.0f} to {:.0f} MiB a rank; {:.1f} MiB sent at "
        "most\n",
        world.size(), seconds, all, longest, work * 1e-12, work / all * 1e-9, least, most, bytes);
    std::fflush(stdout);
  }
  return 0;
}
