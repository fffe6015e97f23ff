#pragma once
// Typed broadcasts and gathers: of one value, a vector of values, or a vector of texts per rank.
//
//                    one value            values                texts
//   broadcast        broadcast_value      broadcast_values      broadcast_texts
//   to all ranks     all_gather_value     all_gather_values     all_gather_texts
//   to one rank      gather_value         gather_values         gather_texts
//
// All are collective over the group. Values are sent as raw bytes, so all ranks must have the same
// ABI. Gathers return one element per rank, in rank order; those to one rank return an empty vector
// on the others. Vectors may be empty, and of different lengths. Error(internal) if another rank
// sent bytes that are not values of this type.
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/group.hpp"

namespace reelmesh::comm {

/// What may be sent as raw bytes. std::vector<bool> has no bytes of its own.
template <class T>
concept Value =
    std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_same_v<T, bool>;

namespace detail {

template <Value T>
std::string bytes_of(const T* values, std::size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}

/// rank: of the group, that sent the block.
template <Value T>
std::vector<T> values_of(const std::string& block, std::size_t rank) {
  expect(block.size() % sizeof(T) == 0, "rank {} sent {} bytes, expected values of {}", rank,
         block.size(), sizeof(T));
  std::vector<T> values(block.size() / sizeof(T));
  if (!block.empty()) std::memcpy(static_cast<void*>(values.data()), block.data(), block.size());
  return values;
}

template <Value T>
T value_of(const std::string& block, std::size_t rank) {
  expect(block.size() == sizeof(T), "rank {} sent {} bytes, expected a value of {}", rank,
         block.size(), sizeof(T));
  return values_of<T>(block, rank).front();
}

template <Value T>
std::vector<T> value_of_each(const std::vector<std::string>& blocks) {
  std::vector<T> values;
  for (std::size_t r = 0; r < blocks.size(); ++r) values.push_back(value_of<T>(blocks[r], r));
  return values;
}

template <Value T>
std::vector<std::vector<T>> values_of_each(const std::vector<std::string>& blocks) {
  std::vector<std::vector<T>> values;
  for (std::size_t r = 0; r < blocks.size(); ++r) values.push_back(values_of<T>(blocks[r], r));
  return values;
}

}  // namespace detail

/// The root's value, on every rank.
template <Value T>
T broadcast_value(const Group& group, const T& value, int root) {
  const bool sends = group.rank() == root;
  return detail::value_of<T>(group.broadcast(sends ? detail::bytes_of(&value, 1) : "", root),
                             static_cast<std::size_t>(root));
}
/// The root's values, on every rank; those of other ranks are ignored.
template <Value T>
std::vector<T> broadcast_values(const Group& group, const std::vector<T>& values, int root) {
  const bool sends = group.rank() == root;
  return detail::values_of<T>(
      group.broadcast(sends ? detail::bytes_of(values.data(), values.size()) : "", root),
      static_cast<std::size_t>(root));
}
std::vector<std::string> broadcast_texts(const Group& group, const std::vector<std::string>& texts,
                                         int root);

template <Value T>
std::vector<T> all_gather_value(const Group& group, const T& value) {
  return detail::value_of_each<T>(group.all_gather(detail::bytes_of(&value, 1)));
}
template <Value T>
std::vector<std::vector<T>> all_gather_values(const Group& group, const std::vector<T>& values) {
  return detail::values_of_each<T>(
      group.all_gather(detail::bytes_of(values.data(), values.size())));
}
std::vector<std::vector<std::string>> all_gather_texts(const Group& group,
                                                       const std::vector<std::string>& texts);

template <Value T>
std::vector<T> gather_value(const Group& group, const T& value, int root) {
  return detail::value_of_each<T>(group.gather(detail::bytes_of(&value, 1), root));
}
template <Value T>
std::vector<std::vector<T>> gather_values(const Group& group, const std::vector<T>& values,
                                          int root) {
  return detail::values_of_each<T>(
      group.gather(detail::bytes_of(values.data(), values.size()), root));
}
std::vector<std::vector<std::string>> gather_texts(const Group& group,
                                                   const std::vector<std::string>& texts, int root);

}  // namespace reelmesh::comm
