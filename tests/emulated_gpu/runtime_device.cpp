// Errors and devices of the emulated CUDA runtime.
#include <cstdio>
#include <cstring>
#include <utility>

#include "emulated_gpu/settings.hpp"
#include "emulated_gpu/stream.hpp"

namespace reelmesh::emulated {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

}  // namespace

cudaError_t result(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

}  // namespace reelmesh::emulated

using namespace reelmesh::emulated;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define REELMESH_NAME(name) \
  case name:                \
    return #name
    REELMESH_NAME(cudaSuccess);
    REELMESH_NAME(cudaErrorInvalidValue);
    REELMESH_NAME(cudaErrorMemoryAllocation);
    REELMESH_NAME(cudaErrorNoDevice);
    REELMESH_NAME(cudaErrorInvalidDevice);
    REELMESH_NAME(cudaErrorInsufficientDriver);
    REELMESH_NAME(cudaErrorNoKernelImageForDevice);
    REELMESH_NAME(cudaErrorInvalidKernelImage);
    REELMESH_NAME(cudaErrorInvalidDeviceFunction);
    REELMESH_NAME(cudaErrorInvalidPtx);
    REELMESH_NAME(cudaErrorUnsupportedPtxVersion);
    REELMESH_NAME(cudaErrorJitCompilerNotFound);
    REELMESH_NAME(cudaErrorJitCompilationDisabled);
    REELMESH_NAME(cudaErrorDevicesUnavailable);
    REELMESH_NAME(cudaErrorInvalidResourceHandle);
    REELMESH_NAME(cudaErrorNotReady);
    REELMESH_NAME(cudaErrorNotPermitted);
    REELMESH_NAME(cudaErrorNotSupported);
    REELMESH_NAME(cudaErrorHostMemoryAlreadyRegistered);
    REELMESH_NAME(cudaErrorHostMemoryNotRegistered);
    REELMESH_NAME(cudaErrorStreamCaptureUnsupported);
    REELMESH_NAME(cudaErrorStreamCaptureInvalidated);
    REELMESH_NAME(cudaErrorStreamCaptureUnmatched);
    REELMESH_NAME(cudaErrorStreamCaptureUnjoined);
    REELMESH_NAME(cudaErrorStreamCaptureIsolation);
    REELMESH_NAME(cudaErrorStreamCaptureMerge);
    REELMESH_NAME(cudaErrorStreamCaptureWrongThread);
    REELMESH_NAME(cudaErrorCapturedEvent);
#undef REELMESH_NAME
  }
  return "unknown";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorUnsupportedPtxVersion:
      return "the provided PTX was compiled with an unsupported toolchain.";
    default:
      return "refused by the emulated GPU";
  }
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = settings().devices;
  return result(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (settings().devices == 0) return result(cudaErrorNoDevice);
  if (device < 0 || device >= settings().devices) return result(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (settings().devices == 0) return result(cudaErrorNoDevice);
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= settings().devices) return result(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 1;  // one kernel at a time
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 1 << 20;
      break;
    default:
      return result(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= settings().devices) return result(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "%s", settings().name.c_str());
  properties->totalGlobalMem = settings().memory;
  properties->major = 9;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (device < 0 || device >= settings().devices) return result(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* min, int* greatest) {
  *min = 0;
  *greatest = -1;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings().devices > 0 ? settings().driver : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = toolkit;
  return cudaSuccess;
}
