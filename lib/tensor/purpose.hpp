#pragma once
// What the memory of tensors is for.
#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/device.hpp"

namespace reelmesh {

enum class Purpose : std::uint8_t { activations, weights, workspace, exchange, queue };
constexpr std::array<const char*, 5> purpose_names{"activations", "weights", "workspace",
                                                   "exchange", "queue"};
constexpr std::size_t purposes = purpose_names.size();

/// Memory of tensors that this thread allocates within the scope is for this purpose; outside such
/// scopes for activations. Of nested scopes the inner one counts.
class PurposeScope {
 public:
  explicit PurposeScope(Purpose purpose);
  ~PurposeScope();
  PurposeScope(const PurposeScope&) = delete;
  PurposeScope& operator=(const PurposeScope&) = delete;

 private:
  Purpose before_;
};

/// That of the innermost scope.
Purpose current_purpose();

/// Bytes of this process's tensors on the host, or on GPUs.
struct MemoryByPurpose {
  std::array<std::int64_t, purposes> present{};
  std::array<std::int64_t, purposes> peak{};     ///< of each purpose
  std::array<std::int64_t, purposes> at_peak{};  ///< when the sum of all had its peak
};
MemoryByPurpose memory_by_purpose(bool on_gpu);

/// The bytes that are present now, and the most since the previous call, of each purpose. For the
/// one reader that records them over time.
struct RecentMemory {
  std::array<std::int64_t, purposes> present{}, max{};
};
RecentMemory take_recent_memory(bool on_gpu);

/// All peaks are set back to what is present now.
void forget_memory_peaks();

/// Counts the memory of a tensor, for the purpose of the innermost scope; and that it is freed.
Purpose count_memory(Device device, std::int64_t bytes);
void count_freed(Device device, std::int64_t bytes, Purpose purpose);

}  // namespace reelmesh
