#pragma once
// A pool of pinned host memory.
#include <cstddef>
#include <memory>
#include <vector>

#include "tensor/cuda/handles.hpp"

namespace reelmesh::comm {

/// A block of pinned memory, and the event after which it may be reused.
struct PinnedBlock {
  cuda::Pinned memory;
  std::size_t bytes = 0;
  cuda::Event free;  ///< recorded by users that give the block back before their copy has completed

  std::byte* data() const { return static_cast<std::byte*>(memory.get()); }
};

/// Block sizes are powers of two, at least 64 KiB, so that exchanges of similar sizes share blocks.
class PinnedPool {
 public:
  std::unique_ptr<PinnedBlock> take(std::int64_t bytes);
  void give_back(std::unique_ptr<PinnedBlock> block) { free_.push_back(std::move(block)); }

 private:
  std::vector<std::unique_ptr<PinnedBlock>> free_;
};

}  // namespace reelmesh::comm
