#pragma once
// NVIDIA's libraries, loaded when they are first needed. Linked, they would cost every process 200
// MiB and 0.1 s, even if it computes on the CPU.
#include <fmt/format.h>

#include <cstddef>
#include <string>

#include "base/shared_library.hpp"

namespace reelmesh::cuda {

// The major version that the program was compiled for. Loaded by the first call; thread-safe.
// Throws Error(unavailable) if the library cannot be loaded.
const SharedLibrary& cublas_lt();
const SharedLibrary& cudnn();
const SharedLibrary& nccl();

/// "9.19.0" for 91900, as cuBLASLt, cuDNN and NCCL number their versions.
inline std::string version_text(std::size_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

}  // namespace reelmesh::cuda

/// Declares a variable or member that has the name of a library's function and points to it. With
/// an emulated GPU the functions are linked into the program.
#ifdef REELMESH_EMULATED_GPU
#define REELMESH_LIBRARY_FUNCTION(library, f) decltype(&::f) f = &::f
#else
#define REELMESH_LIBRARY_FUNCTION(library, f) \
  decltype(&::f) f = (library).function<std::remove_pointer_t<decltype(&::f)>>(#f)
#endif
