#pragma once
#include <cstddef>
#include <vector>

namespace reelmesh {

/// A value for each of some groups of ranks, most of which have the same: it is kept once.
template <class T>
class PerGroup {
 public:
  void push_back(T value) {
    values_.push_back(std::move(value));
    repeat_last();
  }
  void repeat_last() { index_.push_back(values_.size() - 1); }

  const T& operator[](std::size_t group) const { return values_[index_[group]]; }
  const T& at(std::size_t group) const { return values_[index_.at(group)]; }
  const T& front() const { return at(0); }
  std::size_t size() const { return index_.size(); }
  bool empty() const { return index_.empty(); }

 private:
  std::vector<T> values_;
  std::vector<std::size_t> index_;  ///< in values_, for each group
};

}  // namespace reelmesh
