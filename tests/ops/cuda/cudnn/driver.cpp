// A stand-in for the CUDA driver (libcuda.so.1) on machines without one. To make plans for
// attention cuDNN compiles kernels, and loads them into the driver; nothing runs. These are the
// functions that cuDNN 9.19 and NVRTC 13.0 look for; those that succeed are called while a plan is
// made. Names of kernels that are looked up are kept for tests.
#include <mutex>
#include <string>

namespace {
std::mutex mutex;
std::string names, taken;

int find_kernel(void** into, const char* name) {
  static int something;
  *into = &something;
  const std::lock_guard lock(mutex);
  names += name;
  names += '\n';
  return 0;
}
}  // namespace

#define REELMESH_SUCCEEDS(function) \
  int function(void** into) {       \
    static int something;           \
    *into = &something;             \
    return 0;                       \
  }
#define REELMESH_GIVES(function, number) \
  int function(int* into) {              \
    *into = number;                      \
    return 0;                            \
  }
// CUDA_ERROR_STUB_LIBRARY
#define REELMESH_FAILS(function) \
  int function() { return 34; }

extern "C" {
// Names since the last call, a line each; valid until the next.
const char* reelmesh_kernel_names() {
  const std::lock_guard lock(mutex);
  taken.swap(names);
  names.clear();
  return taken.c_str();
}
int cuLibraryGetKernel(void** into, void* /*library*/, const char* name) {
  return find_kernel(into, name);
}
int cuModuleGetFunction(void** into, void* /*module*/, const char* name) {
  return find_kernel(into, name);
}
REELMESH_GIVES(cuDriverGetVersion, 13000)
REELMESH_GIVES(cuDeviceGet, 0)
REELMESH_GIVES(cuDeviceGetCount, 1)
REELMESH_GIVES(cuCtxGetDevice, 0)
REELMESH_GIVES(cuFuncGetAttribute, 0)
REELMESH_GIVES(cuKernelGetAttribute, 0)
REELMESH_SUCCEEDS(cuCtxGetCurrent)
REELMESH_SUCCEEDS(cuDevicePrimaryCtxRetain)
REELMESH_SUCCEEDS(cuLibraryLoadData)
REELMESH_SUCCEEDS(cuModuleLoadData)
REELMESH_SUCCEEDS(cuModuleLoadDataEx)
REELMESH_FAILS(cuCtxGetLimit)
REELMESH_FAILS(cuCtxPopCurrent)
REELMESH_FAILS(cuCtxPushCurrent)
REELMESH_FAILS(cuDeviceGetAttribute)
REELMESH_FAILS(cuDevicePrimaryCtxRelease)
REELMESH_FAILS(cuDevicePrimaryCtxReset)
REELMESH_FAILS(cuFuncSetAttribute)
REELMESH_FAILS(cuGetErrorName)
REELMESH_FAILS(cuGetErrorString)
REELMESH_FAILS(cuInit)
REELMESH_FAILS(cuKernelSetAttribute)
REELMESH_FAILS(cuLaunchCooperativeKernel)
REELMESH_FAILS(cuLaunchKernel)
REELMESH_FAILS(cuLaunchKernelEx)
REELMESH_FAILS(cuLibraryLoadFromFile)
REELMESH_FAILS(cuLibraryUnload)
REELMESH_FAILS(cuLinkAddData)
REELMESH_FAILS(cuLinkAddData_v2)
REELMESH_FAILS(cuLinkAddFile_v2)
REELMESH_FAILS(cuLinkComplete)
REELMESH_FAILS(cuLinkCreate)
REELMESH_FAILS(cuLinkCreate_v2)
REELMESH_FAILS(cuLinkDestroy)
REELMESH_FAILS(cuMemcpyDtoH_v2)
REELMESH_FAILS(cuModuleGetGlobal_v2)
REELMESH_FAILS(cuModuleLoadFatBinary)
REELMESH_FAILS(cuModuleUnload)
REELMESH_FAILS(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REELMESH_FAILS(cuOccupancyMaxPotentialClusterSize)
REELMESH_FAILS(cuStreamGetCtx)
REELMESH_FAILS(cuStreamSynchronize)
REELMESH_FAILS(cuTensorMapEncodeTiled)
}
