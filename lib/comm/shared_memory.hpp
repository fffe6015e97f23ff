#pragma once
// Host memory that the ranks of a host share.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/group.hpp"

namespace reelmesh::comm {

/// `bytes` > 0 bytes of zeros that all ranks of `host`, which run on one host, can read and write.
/// Page-aligned. It is gone when the last of them has released it, or has ended. Throws
/// Error(unavailable) on all ranks if there is not enough room (/dev/shm, or memory if `host` has
/// one rank). Collective.
std::shared_ptr<std::byte> shared_memory(const Group& host, std::int64_t bytes);

}  // namespace reelmesh::comm
