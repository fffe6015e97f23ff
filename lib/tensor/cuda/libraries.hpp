#pragma once
// NVIDIA's libraries, loaded when they are first needed: linked, they would cost every process 200
// MiB and 0.1 s, those that compute on the CPU too.
#include "base/shared_library.hpp"

namespace reelmesh::cuda {

// Of the major version that the program was compiled for. Loaded by the first call, from whatever
// thread. Error(unavailable) where that cannot be.
const SharedLibrary& cublas_lt();
const SharedLibrary& cudnn();
const SharedLibrary& nccl();

}  // namespace reelmesh::cuda

/// A variable or member, named as a library's function, that points to it. Those of an emulated GPU
/// are in the program itself.
#ifdef REELMESH_EMULATED_GPU
#define REELMESH_LIBRARY_FUNCTION(library, f) decltype(&::f) f = &::f
#else
#define REELMESH_LIBRARY_FUNCTION(library, f) \
  decltype(&::f) f = (library).function<std::remove_pointer_t<decltype(&::f)>>(#f)
#endif
