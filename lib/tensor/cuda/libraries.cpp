#include "tensor/cuda/libraries.hpp"

#include <cublasLt.h>
#include <cudnn.h>
#include <nccl.h>

#include "base/error.hpp"

namespace reelmesh::cuda {
namespace {

SharedLibrary load(const char* name, const char* file, int major) {
  // Folder of the toolkit at build time, which may not be in the loader's search path.
  return {name, fmt::format("{}.so.{}", file, major), REELMESH_CUDA_LIBRARY_FOLDER};
}

}  // namespace

const SharedLibrary& cublas_lt() {
  static const SharedLibrary library = load("cuBLASLt", "libcublasLt", CUBLAS_VER_MAJOR);
  return library;
}

const SharedLibrary& cudnn() {
  static const SharedLibrary library = load("cuDNN", "libcudnn", CUDNN_MAJOR);
  return library;
}

const SharedLibrary& nccl() {
  static const SharedLibrary library = load("NCCL", "libnccl", NCCL_MAJOR);
  return library;
}

}  // namespace reelmesh::cuda
