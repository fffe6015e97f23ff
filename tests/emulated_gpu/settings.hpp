#pragma once
// Settings of the emulated GPUs of this process, from environment variables.
#include <cstddef>
#include <cstdint>
#include <string>

namespace reelmesh::emulated {

struct Settings {
  int devices;         ///< REELMESH_EMULATED_GPUS, default 1; 0: there is no GPU
  std::size_t memory;  ///< REELMESH_EMULATED_GPU_MEMORY, bytes per device, default 16 GiB
  std::int64_t delay;  ///< REELMESH_EMULATED_GPU_DELAY, maximum delay of work, µs, default 0
  /// REELMESH_EMULATED_GPU_ROWS: algorithms of cuBLASLt support only multiples of this number of
  /// rows; default 1.
  std::int64_t rows;
  std::int64_t order;  ///< REELMESH_EMULATED_GPU_ORDER, seed of threads' and blocks' order; 0: none
};
const Settings& settings();

/// Aborts the process with a message: for errors of the program that CUDA reports by no status.
[[noreturn]] void stop(const std::string& message);

}  // namespace reelmesh::emulated
