#pragma once
// Settings of the emulated GPUs of this process, from environment variables.
#include <cstddef>
#include <cstdint>
#include <string>

namespace reelmesh::emulated {

/// The CUDA version of the emulated toolkit, of which kernels are PTX.
constexpr int toolkit = 13000;

struct Settings {
  int devices;         ///< REELMESH_EMULATED_GPUS, default 1; 0: there is no GPU
  std::size_t memory;  ///< REELMESH_EMULATED_GPU_MEMORY, bytes per device, default 16 GiB
  /// REELMESH_EMULATED_GPU_TAKEN=BYTES:N: another process takes so many bytes of each device, or
  /// what is free of them, when this one asks for the Nth time how much is free; default 0:0.
  std::size_t taken;
  std::int64_t taken_at;
  std::int64_t delay;  ///< REELMESH_EMULATED_GPU_DELAY, maximum delay of work, µs, default 0
  /// REELMESH_EMULATED_GPU_ROWS: algorithms of cuBLASLt support only multiples of this number of
  /// rows; default 1.
  std::int64_t rows;
  /// REELMESH_EMULATED_CUBLASLT_FEW: products of fewer rows have other sums, by every algorithm;
  /// default 0.
  std::int64_t few;
  std::int64_t order;  ///< REELMESH_EMULATED_GPU_ORDER, seed of threads' and blocks' order; 0: none
  std::string name;    ///< REELMESH_EMULATED_GPU_NAME, of all devices, default "emulated GPU"
  /// REELMESH_EMULATED_GPU_DRIVER: the CUDA version that the driver supports, as CUDA numbers it;
  /// default that of the toolkit. An older one refuses every kernel.
  int driver;
};
const Settings& settings();

/// Aborts the process with a message: for errors of the program that CUDA reports by no status.
[[noreturn]] void stop(const std::string& message);

}  // namespace reelmesh::emulated
