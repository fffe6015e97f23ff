#pragma once
#include <utility>

namespace reelmesh {

/// The one move-only owner of a C handle. `Release` is called with the handle unless it is `null`.
template <class T, auto Release, T null = T{}>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, null)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = std::exchange(other.value_, null);
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }

  T get() const { return value_; }
  explicit operator bool() const { return value_ != null; }
  /// Gives up ownership: returns the handle without calling Release.
  T release() { return std::exchange(value_, null); }
  void reset() {
    if (value_ != null) Release(std::exchange(value_, null));
  }

 private:
  T value_ = null;
};

}  // namespace reelmesh
