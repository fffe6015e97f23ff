#include "emulated_gpu/memory.hpp"

#include <sys/mman.h>

#include "emulated_gpu/device.hpp"

namespace reelmesh::emulated {
namespace {

class EmulatedMemory : public EmulatedGpu {};

TEST_F(EmulatedMemory, IsNaNUntilItIsWritten) {
  std::byte* p = memory(8);
  EXPECT_EQ(read(p, 8), std::vector<int>(8, 0xff));
  set(p, 7, 4);
  EXPECT_EQ(read(p, 8), (std::vector<int>{7, 7, 7, 7, 0xff, 0xff, 0xff, 0xff}));
  succeed(cudaFreeAsync(p, stream));
}

TEST_F(EmulatedMemory, IsPoisonedWhereTheStreamFreesIt) {
  std::byte* p = memory(4);
  set(p, 7, 4);
  std::vector<int> before(1), after(1);
  const auto look = [p](std::vector<int>& into) {
    return Work{"look", [p, &into] { into[0] = std::to_integer<int>(*p); }};
  };
  succeed(enqueue(stream, look(before)));
  succeed(cudaFreeAsync(p, stream));
  succeed(enqueue(stream, look(after)));
  succeed(cudaStreamSynchronize(stream));
  EXPECT_EQ(before[0], 7);
  EXPECT_EQ(after[0], 0xff);
}

TEST_F(EmulatedMemory, IsNotTheHosts) {
  std::byte* p = memory(4);
  EXPECT_DEATH(
      {
        cudaStreamSynchronize(stream);
        *p = std::byte{1};
      },
      "the host touched memory of a device");
  succeed(cudaFreeAsync(p, stream));
}

TEST_F(EmulatedMemory, WritesBesideABlockAreFound) {
  for (const std::ptrdiff_t at : {-1, 5}) {
    std::byte* p = memory(5);
    const auto write_and_free = [&] {
      enqueue(stream, {"write", [p, at] { p[at] = std::byte{1}; }});
      cudaFreeAsync(p, stream);
      cudaStreamSynchronize(stream);
    };
    EXPECT_DEATH(write_and_free(), at < 0 ? "a write 1 bytes before a block of 5 bytes on device 0"
                                          : "a write 0 bytes behind the end of a block of 5");
    succeed(cudaFreeAsync(p, stream));
  }
}

TEST_F(EmulatedMemory, CopiesStayWithinABlock) {
  std::byte* p = memory(16);
  std::byte* host = pinned(32);
  succeed(cudaMemcpyAsync(p + 8, host, 8, cudaMemcpyHostToDevice, stream));
  for (const auto& [offset, bytes] : {std::pair{8, 9}, {-1, 4}, {16, 1}}) {
    expect_status(cudaMemcpyAsync(p + offset, host, static_cast<std::size_t>(bytes),
                                  cudaMemcpyHostToDevice, stream),
                  cudaErrorInvalidValue);
  }
  expect_status(cudaMemcpyAsync(p, host, 8, cudaMemcpyDeviceToHost, stream), cudaErrorInvalidValue);
  succeed(cudaFreeAsync(p, stream));
  expect_status(cudaMemsetAsync(p, 0, 1, stream), cudaErrorInvalidValue);
  expect_status(cudaFreeAsync(p, stream), cudaErrorInvalidValue);
  succeed(cudaFreeHost(host));
}

TEST_F(EmulatedMemory, IsCopiedFromAndToPinnedMemory) {
  std::byte* p = memory(16);
  std::byte* half = pinned(8);
  std::byte pageable[16] = {};
  constexpr const char* message = "cudaMemcpyAsync of host memory that is not pinned";
  EXPECT_DEATH(cudaMemcpyAsync(p, pageable, 16, cudaMemcpyHostToDevice, stream), message);
  EXPECT_DEATH(cudaMemcpyAsync(pageable, p, 16, cudaMemcpyDeviceToHost, stream), message);
  EXPECT_DEATH(cudaMemcpyAsync(half, p, 16, cudaMemcpyDeviceToHost, stream), message);
  succeed(cudaMemcpyAsync(half, p, 8, cudaMemcpyDeviceToHost, stream));
  succeed(cudaFreeHost(half));
  succeed(cudaFreeAsync(p, stream));
}

TEST_F(EmulatedMemory, AddressesSayWhereTheyAre) {
  std::byte* p = memory(16);
  cudaPointerAttributes found{};
  succeed(cudaPointerGetAttributes(&found, p + 3));
  EXPECT_EQ(found.type, cudaMemoryTypeDevice);
  succeed(cudaFreeAsync(p, stream));
  int host = 0;
  succeed(cudaPointerGetAttributes(&found, &host));
  EXPECT_EQ(found.type, cudaMemoryTypeUnregistered);
  succeed(cudaHostRegister(&host, sizeof(host), cudaHostRegisterDefault));
  expect_status(cudaHostRegister(&host, sizeof(host), cudaHostRegisterDefault),
                cudaErrorHostMemoryAlreadyRegistered);
  succeed(cudaPointerGetAttributes(&found, &host));
  EXPECT_EQ(found.type, cudaMemoryTypeHost);
  succeed(cudaHostUnregister(&host));
  expect_status(cudaHostUnregister(&host), cudaErrorHostMemoryNotRegistered);
}

TEST_F(EmulatedMemory, IsUnregisteredBeforeItIsUnmapped) {
  const auto unmap_first = [] {
    constexpr std::size_t bytes = 8192;
    void* host = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cudaHostRegister(host, bytes, cudaHostRegisterDefault);
    ::munmap(host, bytes);
    cudaHostUnregister(host);
  };
  EXPECT_DEATH(unmap_first(), "cudaHostUnregister of memory that is not mapped any more");
}

TEST_F(EmulatedMemory, FreeMemoryIsOnePieceAgain) {
  Memory::Usage before = Memory::instance().usage(0);
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < 8; ++i) blocks.push_back(memory(1000 * (i + 1)));
  EXPECT_GT(Memory::instance().usage(0).used, before.used);
  for (const std::size_t i : {3, 1, 2, 7, 0, 5, 4, 6}) succeed(cudaFreeAsync(blocks[i], stream));
  succeed(cudaStreamSynchronize(stream));
  EXPECT_EQ(Memory::instance().usage(0).used, before.used);
  std::byte* all = memory(36000);
  EXPECT_EQ(all, blocks[0]);
  succeed(cudaFreeAsync(all, stream));
}

bool memory_ends() {
  cudaStream_t stream = nullptr;
  void *half = nullptr, *more = nullptr;
  std::size_t free = 0, total = 0;
  cudaMemPool_t pool = nullptr;
  return cudaStreamCreate(&stream) == cudaSuccess &&
         cudaMallocAsync(&half, 600 << 10, stream) == cudaSuccess &&
         cudaMallocAsync(&more, 600 << 10, stream) == cudaErrorMemoryAllocation &&
         cudaGetLastError() == cudaErrorMemoryAllocation &&
         cudaFreeAsync(half, stream) == cudaSuccess &&
         // Freed by the host, though perhaps not yet by the stream.
         cudaMallocAsync(&more, 600 << 10, stream) == cudaSuccess &&
         cudaFreeAsync(more, stream) == cudaSuccess &&
         cudaStreamSynchronize(stream) == cudaSuccess &&
         cudaMemGetInfo(&free, &total) == cudaSuccess && total == 1 << 20 && free == 424 << 10 &&
         cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess &&
         cudaMemPoolTrimTo(pool, 0) == cudaSuccess &&
         cudaMemGetInfo(&free, &total) == cudaSuccess && free == total;
}

TEST(EmulatedDevice, HasSoMuchMemory) {
  EXPECT_WITH_SETTING("REELMESH_EMULATED_GPU_MEMORY", "1048576", memory_ends());
}

bool no_device() {
  int count = -1, driver = -1;
  void* address = nullptr;
  cudaStream_t stream = nullptr;
  return cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0 &&
         cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0 &&
         cudaSetDevice(0) == cudaErrorNoDevice && cudaStreamCreate(&stream) == cudaErrorNoDevice &&
         cudaMalloc(&address, 1) == cudaErrorNoDevice &&
         cudaMallocHost(&address, 1) == cudaErrorNoDevice;
}

TEST(EmulatedDevice, MayBeMissing) {
  EXPECT_WITH_SETTING("REELMESH_EMULATED_GPUS", "0", no_device());
}

bool three_devices() {
  int count = 0, device = -1;
  void* address = nullptr;
  cudaPointerAttributes found{};
  return cudaGetDeviceCount(&count) == cudaSuccess && count == 3 &&
         cudaSetDevice(3) == cudaErrorInvalidDevice && cudaSetDevice(2) == cudaSuccess &&
         cudaGetDevice(&device) == cudaSuccess && device == 2 &&
         cudaMalloc(&address, 8) == cudaSuccess &&
         cudaPointerGetAttributes(&found, address) == cudaSuccess && found.device == 2 &&
         Memory::instance().usage(0).used == 0 && Memory::instance().usage(2).used > 0 &&
         cudaFree(address) == cudaSuccess;
}

TEST(EmulatedDevice, MayBeOneOfSeveral) {
  EXPECT_WITH_SETTING("REELMESH_EMULATED_GPUS", "3", three_devices());
}

}  // namespace
}  // namespace reelmesh::emulated
