#pragma once
#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace reelmesh {

/// A value that few of many objects have: it takes the memory of a pointer while it is T().
template <class T>
class Seldom {
 public:
  Seldom() = default;
  Seldom(const Seldom& other) : Seldom(*other) {}
  Seldom(Seldom&&) noexcept = default;
  template <class U>
  requires std::convertible_to<U, T> &&
      (!std::same_as<std::remove_cvref_t<U>, Seldom>)Seldom(U&& value) {
    T own = std::forward<U>(value);
    if (own != T()) value_ = std::make_unique<T>(std::move(own));
  }
  Seldom& operator=(Seldom other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }

  const T& operator*() const {
    static const T none{};
    return value_ == nullptr ? none : *value_;
  }
  const T* operator->() const { return &**this; }
  friend bool operator==(const Seldom& a, const Seldom& b) { return *a == *b; }

 private:
  std::unique_ptr<T> value_;
};

}  // namespace reelmesh
