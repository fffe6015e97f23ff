// Memory of the emulated CUDA runtime: device memory, allocated in stream order or at once, and
// pinned host memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>

#include "emulated_gpu/settings.hpp"
#include "emulated_gpu/stream.hpp"

// The default memory pool of a device, its only one.
struct CUmemPoolHandle_st {
  int device = 0;
  std::uint64_t threshold = 0;
};

namespace reelmesh::emulated {
namespace {

// Pinned or registered host memory: first address → bytes. Requires api() to be held.
std::map<std::byte*, std::size_t>& pinned() {
  static auto& all = *new std::map<std::byte*, std::size_t>;
  return all;
}

const std::pair<std::byte* const, std::size_t>* find_pinned(const void* address) {
  auto* at = static_cast<std::byte*>(const_cast<void*>(address));
  const auto next = pinned().upper_bound(at);
  if (next == pinned().begin()) return nullptr;
  const auto& found = *std::prev(next);
  return at < found.first + found.second ? &found : nullptr;
}

// Allocates a block. If memory is short, waits for pending frees of all streams and tries again.
std::optional<Memory::Block> take(int device, std::size_t bytes, bool of_graph) {
  Memory& memory = Memory::instance();
  if (auto block = memory.take(device, bytes, of_graph)) return block;
  if (bytes > settings().memory) return {};
  wait_for_streams(device);
  return memory.take(device, bytes, of_graph);
}

// Whether work enqueued now may use [address, address + bytes): on_device, within one block that is
// not freed; otherwise host memory.
bool usable(const void* address, std::size_t bytes, bool on_device) {
  if (!Memory::instance().is_device(address)) return !on_device;
  const auto block = Memory::instance().find(address);
  return on_device && block && !block->free_requested &&
         bytes <= block->bytes - static_cast<std::size_t>(static_cast<const std::byte*>(address) -
                                                          block->address);
}

// A copy of pageable memory is not asynchronous: the host waits, and it cannot be captured.
void require_pinned(const void* address, std::size_t bytes) {
  if (Memory::instance().is_device(address)) return;
  const auto* found = find_pinned(address);
  if (found == nullptr ||
      static_cast<const std::byte*>(address) + bytes > found->first + found->second) {
    stop("cudaMemcpyAsync of host memory that is not pinned");
  }
}

// The kind of copy that follows from the addresses.
cudaMemcpyKind copy_kind(const void* into, const void* from) {
  const bool to_device = Memory::instance().is_device(into);
  if (Memory::instance().is_device(from)) {
    return to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost;
  }
  return to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost;
}

// Whether all pages of host memory are mapped.
bool is_mapped(const std::byte* address, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(address) / page * page;
  const std::size_t length = reinterpret_cast<std::uintptr_t>(address) + bytes - first;
  std::vector<unsigned char> resident((length + page - 1) / page);
  return ::mincore(reinterpret_cast<void*>(first), length, resident.data()) == 0;
}

cudaError_t host_call() {
  if (settings().devices == 0) return cudaErrorNoDevice;
  const std::scoped_lock lock(api());
  return check_capture_allows();
}

}  // namespace
}  // namespace reelmesh::emulated

using namespace reelmesh::emulated;

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  if (const cudaError_t status = host_call(); status != cudaSuccess) return result(status);
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  int device = 0;
  cudaGetDevice(&device);
  const auto block = take(device, bytes, false);
  if (!block) return result(cudaErrorMemoryAllocation);
  const Memory::Access access;
  Memory::fill(*block);
  *address = block->address;
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  if (const cudaError_t status = host_call(); status != cudaSuccess) return result(status);
  if (address == nullptr) return cudaSuccess;
  const auto block = Memory::instance().find(address);
  if (!block || block->address != address || block->free_requested || block->of_graph) {
    return result(cudaErrorInvalidValue);
  }
  Memory::instance().set_free_requested(*block, true);
  wait_for_streams(-1);
  const Memory::Access access;
  Memory::clear(*block);
  Memory::instance().give_back(*block);
  return cudaSuccess;
}

namespace {

// Allocates memory of the graph that is being captured. Requires api() to be held.
std::optional<Memory::Block> take_for_graph(cudaStream_t stream, std::size_t bytes) {
  Capture& capture = *stream->capture;
  std::vector<Memory::Block>& freed = capture.freed[{stream, bytes}];
  if (!freed.empty()) {
    const Memory::Block block = freed.back();
    freed.pop_back();
    Memory::instance().set_free_requested(block, false);
    return block;
  }
  const auto block = Memory::instance().take(stream->device, bytes, true);
  if (block) capture.graph->blocks.push_back(*block);
  return block;
}

}  // namespace

cudaError_t cudaMallocAsync(void** address, std::size_t bytes, cudaStream_t stream) {
  *address = nullptr;
  std::unique_lock lock(api());
  if (!exists(stream)) return result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  std::optional<Memory::Block> block;
  if (stream->capture != nullptr) {
    if (stream->capture->invalid) return result(cudaErrorStreamCaptureInvalidated);
    block = take_for_graph(stream, bytes);
  } else {
    lock.unlock();
    block = take(stream->device, bytes, false);
    lock.lock();
  }
  if (!block) return result(cudaErrorMemoryAllocation);
  *address = block->address;
  return result(add_work(stream, {"cudaMallocAsync", [block = *block] { Memory::fill(block); }}));
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  const std::scoped_lock lock(api());
  if (!exists(stream)) return result(cudaErrorInvalidResourceHandle);
  if (address == nullptr) return cudaSuccess;
  Memory& memory = Memory::instance();
  const auto block = memory.find(address);
  const bool capturing = stream->capture != nullptr;
  // A graph can free only memory that was allocated in the same capture.
  if (!block || block->address != address || block->free_requested ||
      (capturing && !block->of_graph)) {
    return result(cudaErrorInvalidValue);
  }
  memory.set_free_requested(*block, true);  // before the stream can execute the free
  const cudaError_t status = add_work(stream, {"cudaFreeAsync", [block = *block, &memory] {
                                                 Memory::clear(block);
                                                 if (!block.of_graph) memory.give_back(block);
                                               }});
  if (status != cudaSuccess) {
    memory.set_free_requested(*block, false);
    return result(status);
  }
  if (capturing) stream->capture->freed[{stream, block->bytes}].push_back(*block);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  if (const cudaError_t status = host_call(); status != cudaSuccess) return result(status);
  constexpr std::size_t page = 4096;
  *address = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  if (*address == nullptr) return result(cudaErrorMemoryAllocation);
  std::memset(*address, 0xff, bytes);
  const std::scoped_lock lock(api());
  pinned().emplace(static_cast<std::byte*>(*address), bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* address) {
  if (const cudaError_t status = host_call(); status != cudaSuccess) return result(status);
  if (address == nullptr) return cudaSuccess;
  wait_for_streams(-1);
  const std::scoped_lock lock(api());
  if (pinned().erase(static_cast<std::byte*>(address)) == 0) return result(cudaErrorInvalidValue);
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned) {
  if (const cudaError_t status = host_call(); status != cudaSuccess) return result(status);
  if (address == nullptr || bytes == 0) return result(cudaErrorInvalidValue);
  const std::scoped_lock lock(api());
  auto* begin = static_cast<std::byte*>(address);
  const auto next = pinned().lower_bound(begin + bytes);
  if (next != pinned().begin() && std::prev(next)->first + std::prev(next)->second > begin) {
    return result(cudaErrorHostMemoryAlreadyRegistered);
  }
  pinned().emplace(begin, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  if (const cudaError_t status = host_call(); status != cudaSuccess) return result(status);
  const std::scoped_lock lock(api());
  const auto found = pinned().find(static_cast<std::byte*>(address));
  if (found == pinned().end()) return result(cudaErrorHostMemoryNotRegistered);
  if (!is_mapped(found->first, found->second)) {
    stop("cudaHostUnregister of memory that is not mapped any more");
  }
  pinned().erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* into, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const std::scoped_lock lock(api());
  if (!exists(stream)) return result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  const cudaMemcpyKind real = copy_kind(into, from);
  if (kind == cudaMemcpyDefault) kind = real;
  if (kind != real || !usable(into, bytes, Memory::instance().is_device(into)) ||
      !usable(from, bytes, Memory::instance().is_device(from))) {
    return result(cudaErrorInvalidValue);
  }
  require_pinned(into, bytes);
  require_pinned(from, bytes);
  return result(add_work(stream, {"cudaMemcpyAsync", [=] { std::memmove(into, from, bytes); }}));
}

cudaError_t cudaMemsetAsync(void* into, int value, std::size_t bytes, cudaStream_t stream) {
  const std::scoped_lock lock(api());
  if (!exists(stream)) return result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (!usable(into, bytes, true)) return result(cudaErrorInvalidValue);
  return result(add_work(stream, {"cudaMemsetAsync", [=] { std::memset(into, value, bytes); }}));
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  *total = settings().memory;
  Memory& memory = Memory::instance();
  static std::atomic<std::int64_t> asked = 0;
  if (++asked == settings().taken_at) memory.take_by_others(settings().taken);
  *free = *total - std::min(*total, memory.usage(device).reserved + memory.outside(device));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static auto& pools = *new std::map<int, CUmemPoolHandle_st>;
  if (device < 0 || device >= settings().devices) return result(cudaErrorInvalidDevice);
  const std::scoped_lock lock(api());
  *pool = &pools[device];
  (*pool)->device = device;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (attribute != cudaMemPoolAttrReleaseThreshold) return result(cudaErrorInvalidValue);
  std::memcpy(&pool->threshold, value, sizeof(pool->threshold));
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const Memory::Usage usage = Memory::instance().usage(pool->device);
  std::uint64_t found = pool->threshold;
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      break;
    case cudaMemPoolAttrUsedMemCurrent:
      found = usage.used;
      break;
    case cudaMemPoolAttrUsedMemHigh:
      found = usage.used_high;
      break;
    case cudaMemPoolAttrReservedMemCurrent:
      found = usage.reserved;
      break;
    case cudaMemPoolAttrReservedMemHigh:
      found = usage.reserved_high;
      break;
  }
  std::memcpy(value, &found, sizeof(found));
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t keep) {
  Memory::instance().trim(pool->device, keep);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  if (settings().devices == 0) return result(cudaErrorNoDevice);
  void* at = const_cast<void*>(address);
  *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, at};
  if (const auto block = Memory::instance().find(address)) {
    *attributes = {cudaMemoryTypeDevice, block->device, at, nullptr};
    return cudaSuccess;
  }
  const std::scoped_lock lock(api());
  if (find_pinned(address) != nullptr) *attributes = {cudaMemoryTypeHost, 0, at, at};
  return cudaSuccess;
}
