#include "tensor/cuda/runtime.hpp"

#include <cublasLt.h>
#include <cudnn.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/profiler.hpp"
#include "base/units.hpp"
#include "tensor/cuda/handles.hpp"
#include "tensor/cuda/libraries.hpp"
#include "tensor/cuda/parallel_copy.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh::cuda {
namespace {

constexpr std::int64_t staging_bytes = 16 << 20;

// Pinned memory in two halves: the host fills or reads one while the other is transferred.
struct Staging {
  Pinned half[2];
  Event free[2];  // recorded after the last transfer of this half
};

// State of this process for one device.
struct Context {
  int capability = 0;
  Stream stream;
  Event reached;  // recorded and waited for by synchronize()
  Staging staging;
  std::mutex staging_mutex;
  std::atomic<std::int64_t> present = 0, peak = 0, recent_peak = 0;

  void count(std::int64_t bytes) {
    const std::int64_t now = present += bytes;
    for (auto* maximum : {&peak, &recent_peak}) {
      std::int64_t before = *maximum;
      while (now > before && !maximum->compare_exchange_weak(before, now)) {
      }
    }
  }
};

int attribute(cudaDeviceAttr name, int ordinal) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, name, ordinal), "cudaDeviceGetAttribute");
  return value;
}

std::unique_ptr<Context> make_context(int ordinal) {
  check(cudaSetDevice(ordinal), "cudaSetDevice");
  auto context = std::make_unique<Context>();
  trace::profiler_ranges = {[](const char* name) { nvtxRangePushA(name); }, [] { nvtxRangePop(); }};
  context->capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, ordinal) +
                        attribute(cudaDevAttrComputeCapabilityMinor, ordinal);
  require(attribute(cudaDevAttrMemoryPoolsSupported, ordinal) != 0, Status::unavailable,
          "{} has no memory pools (cudaMallocAsync), which some virtual GPUs and drivers lack; use "
          "device.backend = cpu",
          to_string(Device{ordinal}));
  context->stream = make_stream();
  context->reached = make_event();
  for (int i = 0; i < 2; ++i) {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, staging_bytes), "cudaMallocHost");
    context->staging.half[i] = Pinned(memory);
    context->staging.free[i] = make_event();
  }
  // Freed memory stays in the pool, because the next layer allocates it again.
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, ordinal), "cudaDeviceGetDefaultMemPool");
  std::uint64_t keep = UINT64_MAX;
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
        "cudaMemPoolSetAttribute");
  return context;
}

// Never destroyed: tensors in static objects may be destroyed later, and the driver frees all
// memory when the process ends.
Context& context(Device device) {
  static auto& mutex = *new std::mutex;
  static auto& contexts = *new std::map<int, std::unique_ptr<Context>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Context>& found = contexts[device.cuda];
  if (found == nullptr) found = make_context(device.cuda);
  check(cudaSetDevice(device.cuda), "cudaSetDevice");
  return *found;
}

// Whether a GPU or its driver cannot run kernels that were compiled as these are.
bool is_of_kernels(cudaError_t status) {
  return status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidKernelImage ||
         status == cudaErrorInvalidDeviceFunction || status == cudaErrorUnsupportedPtxVersion ||
         status == cudaErrorInvalidPtx || status == cudaErrorJitCompilerNotFound ||
         status == cudaErrorJitCompilationDisabled;
}

[[noreturn]] void fail_for_kernels(cudaError_t status, const char* call, int ordinal) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  const int major = attribute(cudaDevAttrComputeCapabilityMajor, ordinal),
            minor = attribute(cudaDevAttrComputeCapabilityMinor, ordinal);
  const Device device{ordinal};
  fail(Status::unavailable,
       "{} on {} failed: {} ({}): kernels were compiled for {}; found {} of compute capability "
       "{}.{}, and a driver that takes PTX of CUDA up to {}; build with "
       "-DREELMESH_CUDA_ARCHITECTURES={}{}, install a newer driver, or use device.backend = cpu",
       call, to_string(device), cudaGetErrorString(status), cudaGetErrorName(status),
       compiled_for(), name(device), major, minor, version_of_cuda(driver), major, minor);
}

// The version of a library, which is loaded; not_found if it cannot be.
template <class Version>
std::string library_version(const Version& version) {
  try {
    return version_text(static_cast<std::size_t>(version()));
  } catch (const Error&) {
    return not_found;
  }
}
std::string cublas_lt_version() {
  return library_version([] {
    const REELMESH_LIBRARY_FUNCTION(cublas_lt(), cublasLtGetVersion);
    return cublasLtGetVersion();
  });
}
std::string cudnn_version() {
  return library_version([] {
    const REELMESH_LIBRARY_FUNCTION(cudnn(), cudnnGetVersion);
    return cudnnGetVersion();
  });
}
std::string nccl_version() {
  return library_version([] {
    const REELMESH_LIBRARY_FUNCTION(nccl(), ncclGetVersion);
    int version = 0;
    ncclGetVersion(&version);
    return version;
  });
}

}  // namespace

std::string version_of_cuda(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  int ordinal = -1;
  const bool known = cudaGetDevice(&ordinal) == cudaSuccess;
  const bool lacking = status == cudaErrorMemoryAllocation || status == cudaErrorNoDevice ||
                       status == cudaErrorInsufficientDriver || status == cudaErrorInvalidDevice ||
                       status == cudaErrorDevicesUnavailable;
  if (known && is_of_kernels(status)) fail_for_kernels(status, call, ordinal);
  fail(lacking ? Status::unavailable : Status::internal, "{} on {} failed: {} ({})", call,
       known ? to_string(Device{ordinal}) : "no device", cudaGetErrorString(status),
       cudaGetErrorName(status));
}

Stream make_stream(int priority) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
        "cudaStreamCreateWithPriority");
  return Stream(stream);
}

bool captures(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return Event(event);
}

Event make_timing_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreate");
  return Event(event);
}

bool reached(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status != cudaErrorNotReady) {
    check(status, "cudaEventQuery");
    return true;
  }
  cudaGetLastError();  // clears cudaErrorNotReady
  return false;
}

void wait(cudaEvent_t event) {
  if (watch == nullptr) return check(cudaEventSynchronize(event), "cudaEventSynchronize");
  using namespace std::chrono;
  const auto start = steady_clock::now();
  while (!reached(event)) {
    const double waited = duration<double>(steady_clock::now() - start).count();
    watch(waited);
    if (waited < 1e-3) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(microseconds(20));
    }
  }
}

Devices devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();  // clears the error
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return {0, "no NVIDIA driver is loaded"};
    return {0, cudaGetErrorString(status), status != cudaErrorNoDevice};
  }
  return {count, count > 0 ? "" : "the driver shows none"};
}

std::string why_no_libraries() {
#ifndef REELMESH_EMULATED_GPU
  try {
    cublas_lt();
    cudnn();
  } catch (const Error& error) {
    return error.what();
  }
#endif
  return {};
}

std::string versions() {
  int runtime = 0;
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  const std::string text = version_of_cuda(runtime);
  if (const Devices found = devices(); found.count == 0) {
    return fmt::format("{}, no libraries loaded: {}", text, found.no_device_reason);
  }
  return fmt::format("{}, cuBLASLt {}, cuDNN {}, NCCL {}", text, cublas_lt_version(),
                     cudnn_version(), nccl_version());
}

std::vector<Fact> facts(Device device, bool sends_by_nccl) {
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  const int capability = compute_capability(device);
  std::vector<Fact> all{
      {"GPU", name(device)},
      {"compute capability", fmt::format("{}.{}", capability / 10, capability % 10)},
      {"multiprocessors", std::to_string(attribute(cudaDevAttrMultiProcessorCount, device.cuda))},
      {"CUDA of the driver", version_of_cuda(driver)},
      {"cuBLASLt", cublas_lt_version()},
      {"cuDNN", cudnn_version()}};
  if (sends_by_nccl) all.emplace_back(nccl_name, nccl_version());
  return all;
}

cudaStream_t stream(Device device) { return context(device).stream.get(); }

int compute_capability(Device device) { return context(device).capability; }

std::string name(Device device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device.cuda), "cudaGetDeviceProperties");
  return properties.name;
}

int multiprocessors(Device device) {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.cuda),
        "cudaDeviceGetAttribute");
  return count;
}

std::string bus(Device device) {
  char text[32] = {};
  check(cudaDeviceGetPCIBusId(text, sizeof text, device.cuda), "cudaDeviceGetPCIBusId");
  return text;
}

DeviceMemory memory(Device device) {
  const Context& c = context(device);
  return {c.present, c.peak};
}

std::int64_t unused_memory(Device device) {
  context(device);  // makes the device current
  std::size_t unused = 0, all = 0;
  check(cudaMemGetInfo(&unused, &all), "cudaMemGetInfo");
  return static_cast<std::int64_t>(unused);
}

std::shared_ptr<const void> allocate(Device device, std::int64_t bytes, void** address) {
  Context& c = context(device);
  const auto ask = [&] {
    return cudaMallocAsync(address, static_cast<std::size_t>(bytes), c.stream.get());
  };
  cudaError_t status = ask();
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    // The pool may be fragmented, and memory of destroyed graphs is not part of it.
    if (!captures(c.stream.get())) {
      trim_memory_pool(device);
      status = ask();
    }
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(Status::unavailable, "no memory left on {} for {}; {} are in use", to_string(device),
         format_bytes(static_cast<double>(bytes)),
         format_bytes(static_cast<double>(c.present.load())));
  }
  check(status, "cudaMallocAsync");
  c.count(bytes);
  const Purpose purpose = count_memory(device, bytes);
  const bool captured = captures(c.stream.get());
  return {*address, [&c, bytes, device, purpose, captured](const void* p) {
            count_freed(device, bytes, purpose);
            c.present -= bytes;
            cudaStreamCaptureStatus now = cudaStreamCaptureStatusNone;
            if (captured) cudaStreamIsCapturing(c.stream.get(), &now);
            // Memory of a capture that has failed is gone with it, and may be another tensor's now.
            if (captured && now == cudaStreamCaptureStatusNone) return;
            // Fails if the capture is about to fail; clears the error.
            if (cudaFreeAsync(const_cast<void*>(p), c.stream.get()) != cudaSuccess) {
              cudaGetLastError();
            }
          }};
}

std::shared_ptr<const void> count(Device device, std::int64_t bytes) {
  Context& c = context(device);
  c.count(bytes);
  return {&c, [&c, bytes](const void*) { c.present -= bytes; }};
}

std::int64_t peak_since_last(Device device) {
  Context& c = context(device);
  const std::int64_t present = c.present;
  return std::max(present, c.recent_peak.exchange(present));
}

void trim_memory_pool(Device device) {
  cuda::synchronize(device);
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, device.cuda), "cudaDeviceGetDefaultMemPool");
  check(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
  check(cudaDeviceGraphMemTrim(device.cuda), "cudaDeviceGraphMemTrim");
}

void upload(Device device, void* into, std::int64_t bytes, std::int64_t unit, const Fill& fill) {
  expect(unit > 0 && unit <= staging_bytes, "units of {} bytes in pieces of {}", unit,
         staging_bytes);
  Context& c = context(device);
  const std::lock_guard lock(c.staging_mutex);
  const std::int64_t piece = staging_bytes / unit * unit;
  int half = 0;
  for (std::int64_t at = 0; at < bytes; at += piece, half ^= 1) {
    const std::int64_t count = std::min(piece, bytes - at);
    wait(c.staging.free[half].get());
    void* pinned = c.staging.half[half].get();
    fill(pinned, at, count);
    check(cudaMemcpyAsync(static_cast<std::byte*>(into) + at, pinned,
                          static_cast<std::size_t>(count), cudaMemcpyHostToDevice, c.stream.get()),
          "cudaMemcpyAsync");
    check(cudaEventRecord(c.staging.free[half].get(), c.stream.get()), "cudaEventRecord");
  }
}

void to_device(Device device, void* into, const void* host, std::int64_t bytes) {
  upload(device, into, bytes, 1, [&](void* pinned, std::int64_t offset, std::int64_t count) {
    parallel_copy(pinned, static_cast<const std::byte*>(host) + offset, count);
  });
}

void to_host(Device device, void* host, const void* from, std::int64_t bytes) {
  Context& c = context(device);
  const std::lock_guard lock(c.staging_mutex);
  const std::int64_t pieces = (bytes + staging_bytes - 1) / staging_bytes;
  const auto size = [&](std::int64_t piece) {
    return std::min(staging_bytes, bytes - piece * staging_bytes);
  };
  // Piece i is transferred while piece i − 1 is copied to `host`.
  for (std::int64_t i = 0; i <= pieces; ++i) {
    if (i < pieces) {
      check(cudaMemcpyAsync(c.staging.half[i % 2].get(),
                            static_cast<const std::byte*>(from) + i * staging_bytes,
                            static_cast<std::size_t>(size(i)), cudaMemcpyDeviceToHost,
                            c.stream.get()),
            "cudaMemcpyAsync");
      check(cudaEventRecord(c.staging.free[i % 2].get(), c.stream.get()), "cudaEventRecord");
    }
    if (i > 0) {
      wait(c.staging.free[(i - 1) % 2].get());
      parallel_copy(static_cast<std::byte*>(host) + (i - 1) * staging_bytes,
                    c.staging.half[(i - 1) % 2].get(), size(i - 1));
    }
  }
}

void on_device(Device device, void* into, const void* from, std::int64_t bytes) {
  check(cudaMemcpyAsync(into, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                        stream(device)),
        "cudaMemcpyAsync");
}

void fill_zero(Device device, void* into, std::int64_t bytes) {
  check(cudaMemsetAsync(into, 0, static_cast<std::size_t>(bytes), stream(device)),
        "cudaMemsetAsync");
}

void synchronize(Device device) {
  Context& c = context(device);
  check(cudaEventRecord(c.reached.get(), c.stream.get()), "cudaEventRecord");
  wait(c.reached.get());
}

}  // namespace reelmesh::cuda
