#include "mpi-ext.h"

#include <cstdlib>
#include <string>

#include "emulated_gpu/memory.hpp"

// A CUDA-aware MPI reads and writes device memory at any time, so it then stays accessible.
int MPIX_Query_cuda_support() {
  const char* text = std::getenv("REELMESH_EMULATED_CUDA_AWARE_MPI");
  if (text == nullptr || std::string(text) != "1") return 0;
  static const auto& access = *new reelmesh::emulated::Memory::Access;
  static_cast<void>(access);
  return 1;
}
