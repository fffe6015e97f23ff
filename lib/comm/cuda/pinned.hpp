#pragma once
// Pinned memory that is used again and again.
#include <cstddef>
#include <memory>
#include <vector>

#include "tensor/cuda/handles.hpp"

namespace reelmesh::comm {

/// A block of pinned memory, and the moment from which it is free.
struct PinnedBlock {
  cuda::Pinned memory;
  std::size_t bytes = 0;
  cuda::Event free;  ///< recorded by those who leave a copy under way when they give the block back

  std::byte* data() const { return static_cast<std::byte*>(memory.get()); }
};

/// Blocks come in sizes that are powers of two, so that exchanges of like sizes share them.
class PinnedPool {
 public:
  std::unique_ptr<PinnedBlock> take(std::int64_t bytes);
  void give_back(std::unique_ptr<PinnedBlock> block) { free_.push_back(std::move(block)); }

 private:
  std::vector<std::unique_ptr<PinnedBlock>> free_;
};

}  // namespace reelmesh::comm
