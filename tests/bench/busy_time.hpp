#pragma once
// Measures a collective stage: wall-clock seconds, CPU seconds of the ranks outside MPI, memory.
// The header of one program only, because it defines functions of MPI.
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

#include "base/trace.hpp"
#include "comm/group.hpp"
#include "tensor/memory.hpp"

namespace reelmesh {

// Bytes of a field of /proc/self/status. VmRSS: resident now; VmHWM: peak since
// reset_peak_memory().
inline std::int64_t resident(const char* field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::int64_t kibibytes = 0;
  while (status >> word) {
    if (word == field) status >> kibibytes;
  }
  return kibibytes * 1024;
}

inline void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

inline double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline double waited = 0;  // CPU seconds spent waiting for other ranks

struct Waiting {
  double since = processor_seconds();
  ~Waiting() { waited += processor_seconds() - since; }
};

}  // namespace reelmesh

// Intercepts, by MPI's profiling interface, the calls in which ranks wait.
int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  const reelmesh::Waiting here;
  return PMPI_Wait(request, status);
}
int MPI_Allreduce(const void* from, void* into, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  const reelmesh::Waiting here;
  return PMPI_Allreduce(from, into, count, type, op, comm);
}

namespace reelmesh {

/// Runs `stage`, which is collective over `world`. Rank 0 prints a line.
template <class Stage>
void measure(const comm::Group& world, Stage&& stage) {
  release_free_memory();
  const std::int64_t before = resident("VmRSS:"), flops = trace::recorder().flops;
  const std::int64_t sent = trace::recorder().bytes_sent;
  reset_peak_memory();
  world.barrier();
  const std::int64_t start = trace::now_ns();
  const double processor = processor_seconds();
  waited = 0;
  stage();
  const double busy = processor_seconds() - processor - waited;
  world.barrier();
  const double seconds = static_cast<double>(trace::now_ns() - start) * 1e-9;
  const double memory = static_cast<double>(resident("VmHWM:") - before) / 1048576.0;
  const double work = world.sum(static_cast<double>(trace::recorder().flops - flops));
  const double all = world.sum(busy), longest = world.max(busy);
  const double bytes =
      world.max(static_cast<double>(trace::recorder().bytes_sent - sent)) / 1048576.0;
  const double max = world.max(memory), min = world.min(memory);
  if (world.rank() != 0) return;
  fmt::print(
      "{} ranks: {:.2f} s; busy {:.2f} s in all, {:.2f} s the fullest rank; {:.3f} TFLOP, "
      "{:.1f} GFLOP/s of a busy rank; memory {:.0f} to {:.0f} MiB a rank; {:.1f} MiB sent at "
      "most\n",
      world.size(), seconds, all, longest, work * 1e-12, work / all * 1e-9, min, max, bytes);
  std::fflush(stdout);
}

}  // namespace reelmesh
