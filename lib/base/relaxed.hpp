#pragma once
#include <atomic>

namespace reelmesh {

/// A value that one thread writes and others read at any time, without order relative to other
/// values (std::memory_order_relaxed). Unlike std::atomic it can be copied.
template <class T>
class Relaxed {
 public:
  Relaxed(T value = {}) : value_(value) {}  // NOLINT: converts like the value itself
  Relaxed(const Relaxed& other) : value_(static_cast<T>(other)) {}
  Relaxed& operator=(const Relaxed& other) { return *this = static_cast<T>(other); }
  Relaxed& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  operator T() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_;
};

}  // namespace reelmesh
