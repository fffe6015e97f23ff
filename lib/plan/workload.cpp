#include "plan/workload.hpp"

namespace reelmesh {

std::int64_t StageMemory::total() const {
  // Fragmentation: free pages between blocks stay resident, up to a tenth of the working memory
  // (max_free_resident in tensor/memory.hpp).
  return weights + working + working / 10;
}

Shape DenoiseWorkload::tokens() const {
  Shape tokens;
  for (std::size_t axis = 0; axis < latents.size(); ++axis) {
    tokens.push_back((latents[axis] + patch.at(axis) - 1) / patch[axis]);
  }
  return tokens;
}

}  // namespace reelmesh
