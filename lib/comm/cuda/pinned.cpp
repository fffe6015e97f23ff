#include "comm/cuda/pinned.hpp"

#include <algorithm>
#include <bit>

namespace reelmesh::comm {

std::unique_ptr<PinnedBlock> PinnedPool::take(std::int64_t bytes) {
  constexpr std::size_t min_size = 64 << 10;
  const std::size_t size = std::max(min_size, std::bit_ceil(static_cast<std::size_t>(bytes)));
  for (auto& block : free_) {
    if (block->bytes != size || !cuda::reached(block->free.get())) continue;
    std::swap(block, free_.back());
    auto found = std::move(free_.back());
    free_.pop_back();
    return found;
  }
  auto block = std::make_unique<PinnedBlock>();
  void* memory = nullptr;
  cuda::check(cudaMallocHost(&memory, size), "cudaMallocHost");
  block->memory = cuda::Pinned(memory);
  block->bytes = size;
  block->free = cuda::make_event();
  return block;
}

}  // namespace reelmesh::comm
