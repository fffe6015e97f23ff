#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

/// Names, known by their positions in a list, that are found at the beginning of a text. Of equal
/// names the last is found.
class PrefixTable {
 public:
  explicit PrefixTable(std::vector<std::wstring> names)
      : names_(std::move(names)), sorted_(names_.size()) {
    std::iota(sorted_.begin(), sorted_.end(), 0);
    std::ranges::stable_sort(
        sorted_, {}, [&](std::int32_t i) -> const auto& { return name(i); });
  }

  std::int32_t size() const { return static_cast<std::int32_t>(names_.size()); }
  const std::wstring& name(std::int32_t position) const {
    return names_[static_cast<std::size_t>(position)];
  }

  /// Calls found(length, position) for each name with which `text` begins, the shortest first.
  template <class Found>
  void each_prefix(std::wstring_view text, Found&& found) const {
    auto first = sorted_.begin(), last = sorted_.end();  // names with the first `at` characters
    for (std::size_t at = 0; at < text.size() && first != last; ++at) {
      // The end of a name comes before all characters, which have no sign on some processors.
      const auto character = [&](std::int32_t i) {
        return at < name(i).size() ? std::int64_t{name(i)[at]} : -1;
      };
      const std::int64_t wanted = text[at];
      first = std::ranges::lower_bound(first, last, wanted, {}, character);
      last = std::ranges::upper_bound(first, last, wanted, {}, character);
      const auto longer = std::ranges::partition_point(
          first, last, [&](std::int32_t i) { return name(i).size() == at + 1; });
      if (longer != first) found(at + 1, *(longer - 1));
    }
  }

  /// The position of a name; -1 if it is not there.
  std::int32_t find(std::wstring_view text) const {
    std::int32_t position = -1;
    each_prefix(text, [&](std::size_t length, std::int32_t i) {
      if (length == text.size()) position = i;
    });
    return position;
  }

 private:
  std::vector<std::wstring> names_;
  std::vector<std::int32_t> sorted_;  ///< positions in names_
};

}  // namespace reelmesh
