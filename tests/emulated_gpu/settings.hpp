#pragma once
// What the environment says about the emulated GPUs of a process.
#include <cstddef>
#include <cstdint>
#include <string>

namespace reelmesh::emulated {

struct Settings {
  int devices;         ///< REELMESH_EMULATED_GPUS, 1 if not set; 0: there is no GPU
  std::size_t memory;  ///< REELMESH_EMULATED_GPU_MEMORY, bytes of each, 16 GiB if not set
  std::int64_t delay;  ///< REELMESH_EMULATED_GPU_DELAY, microseconds that work waits at most
  /// REELMESH_EMULATED_GPU_ROWS: the algorithms of cuBLASLt take multiples of so many rows; 1 if
  /// not set.
  std::int64_t rows;
};
const Settings& settings();

/// Ends the process, for what a program did wrong and CUDA could not tell it by a status.
[[noreturn]] void stop(const std::string& message);

}  // namespace reelmesh::emulated
