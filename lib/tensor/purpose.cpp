#include "tensor/purpose.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace reelmesh {
namespace {

thread_local Purpose current = Purpose::activations;

struct Counts {
  std::mutex mutex;
  MemoryByPurpose bytes;
  std::array<std::int64_t, purposes> recent_max{};
  std::int64_t total = 0, peak = 0;
};

// Never destroyed: tensors of static objects may outlive it.
Counts& counts(bool on_gpu) {
  static auto& all = *new std::array<Counts, 2>;
  return all[on_gpu ? 1 : 0];
}

}  // namespace

PurposeScope::PurposeScope(Purpose purpose) : before_(current) { current = purpose; }
PurposeScope::~PurposeScope() { current = before_; }

Purpose current_purpose() { return current; }

MemoryByPurpose memory_by_purpose(bool on_gpu) {
  Counts& c = counts(on_gpu);
  const std::lock_guard lock(c.mutex);
  return c.bytes;
}

RecentMemory take_recent_memory(bool on_gpu) {
  Counts& c = counts(on_gpu);
  const std::lock_guard lock(c.mutex);
  return {c.bytes.present, std::exchange(c.recent_max, c.bytes.present)};
}

void forget_memory_peaks() {
  for (const bool on_gpu : {false, true}) {
    Counts& c = counts(on_gpu);
    const std::lock_guard lock(c.mutex);
    c.bytes.peak = c.bytes.at_peak = c.recent_max = c.bytes.present;
    c.peak = c.total;
  }
}

Purpose count_memory(Device device, std::int64_t bytes) {
  Counts& c = counts(device.is_cuda());
  const auto purpose = static_cast<std::size_t>(current);
  const std::lock_guard lock(c.mutex);
  MemoryByPurpose& of = c.bytes;
  of.present[purpose] += bytes;
  of.peak[purpose] = std::max(of.peak[purpose], of.present[purpose]);
  c.recent_max[purpose] = std::max(c.recent_max[purpose], of.present[purpose]);
  c.total += bytes;
  if (c.total > c.peak) {
    c.peak = c.total;
    of.at_peak = of.present;
  }
  return current;
}

void count_freed(Device device, std::int64_t bytes, Purpose purpose) {
  Counts& c = counts(device.is_cuda());
  const std::lock_guard lock(c.mutex);
  c.bytes.present[static_cast<std::size_t>(purpose)] -= bytes;
  c.total -= bytes;
}

}  // namespace reelmesh
