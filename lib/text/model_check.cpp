#include "text/model_check.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace reelmesh {
namespace {

/// Reads the fields of a message of a protocol buffer.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  /// Goes to the next field; false at the end and at a damaged field.
  bool next() {
    if (rest_.empty()) return false;
    const auto tag = varint();
    if (!tag) return false;
    number = *tag >> 3;
    bytes = {};
    switch (*tag & 7) {
      case 0:
        damaged = !varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        if (const auto size = varint()) bytes = take(*size);
        break;
      case 5:
        take(4);
        break;
      default:
        damaged = true;
    }
    return !damaged;
  }

  std::uint64_t number = 0;
  std::string_view bytes;  ///< of fields that are messages or bytes
  bool damaged = false;

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= shift < 64 ? std::uint64_t{byte & 0x7fU} << shift : 0;
      if (byte < 0x80) return value;
    }
    damaged = true;
    return std::nullopt;
  }
  std::string_view take(std::uint64_t size) {
    damaged = size > rest_.size();
    if (damaged) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

/// A trie: units of 32 bits. The children of a unit at position p are at p ^ offset ^ label; a unit
/// whose text is complete has a leaf at p ^ offset, which holds the position of its replacement.
class Trie {
 public:
  Trie(std::string_view bytes, std::size_t text_bytes)
      : units_(bytes.size() / sizeof(std::uint32_t)), text_bytes_(text_bytes) {
    if (units_.empty()) return;  // no memory, whose address memcpy must not be given
    std::memcpy(units_.data(), bytes.data(), units_.size() * sizeof(std::uint32_t));
  }

  /// Whether no text leads outside of the trie or of the replacements.
  bool is_sound() {
    leaves_.assign(units_.size(), unknown);
    link_children();
    return !units_.empty() && leaves_below(children_offset(units_[0]), 0) != bad;
  }

 private:
  static constexpr int unknown = -1, in_progress = -2, bad = -3;
  // The library keeps up to 32 leaves of one path; the depth limits the recursion.
  static constexpr int max_leaves = 32, max_depth = 256;
  static constexpr std::uint32_t none = 0xffffffffU;

  static std::uint32_t children_offset(std::uint32_t unit) {
    return (unit >> 10) << ((unit & (1U << 9)) >> 6);
  }

  // Sorts units by base: each is a child of the base at its own position ^ label. Units with the
  // highest bit are leaves.
  void link_children() {
    first_child_.assign(units_.size(), none);
    next_child_.assign(units_.size(), none);
    for (std::uint32_t at = 0; at < units_.size(); ++at) {
      const std::uint32_t base = at ^ (units_[at] & 0xffU);
      if ((units_[at] & 0x80000000U) != 0 || base >= units_.size()) continue;
      next_child_[at] = std::exchange(first_child_[base], at);
    }
  }

  /// The maximum number of leaves on a path below the children at base ^ label, or `bad`.
  int leaves_below(std::uint32_t base, int depth) {
    if (depth > max_depth || (base | 0xffU) >= units_.size()) return bad;
    int max = 0;
    for (std::uint32_t at = first_child_[base]; at != none; at = next_child_[at]) {
      // Subtries may be shared, but a path must not return to itself.
      if (leaves_[at] == unknown) {
        leaves_[at] = in_progress;
        leaves_[at] = count_leaves(at, depth);
      }
      if (leaves_[at] < 0) return bad;
      max = std::max(max, leaves_[at]);
    }
    return max;
  }

  int count_leaves(std::uint32_t at, int depth) {
    const std::uint32_t unit = units_[at], base = at ^ children_offset(unit);
    const bool has_leaf = (unit & 0x100U) != 0;
    const int below = leaves_below(base, depth + 1);
    if (below == bad) return bad;
    if (has_leaf && (units_[base] & 0x7fffffffU) >= text_bytes_) return bad;
    return below + has_leaf > max_leaves ? bad : below + has_leaf;
  }

  std::vector<std::uint32_t> units_;
  std::size_t text_bytes_;
  std::vector<int> leaves_;  // below each unit that has been visited
  // Linked lists of the children at each base.
  std::vector<std::uint32_t> first_child_, next_child_;
};

}  // namespace

bool is_sound_table(std::string_view table) {
  constexpr std::size_t max_text = 1024;  // bytes; the longest in NFKC has 33
  std::uint32_t trie_bytes = 0;
  if (table.empty()) return true;  // no normalisation
  if (table.size() <= sizeof trie_bytes) return false;
  std::memcpy(&trie_bytes, table.data(), sizeof trie_bytes);
  table.remove_prefix(sizeof trie_bytes);
  if (trie_bytes >= table.size()) return false;
  const std::string_view texts = table.substr(trie_bytes);
  for (std::size_t begin = 0; begin < texts.size();) {
    const std::size_t end = texts.find('\0', begin);
    if (end == std::string_view::npos || end - begin > max_text) return false;
    begin = end + 1;
  }
  return Trie(table.substr(0, trie_bytes), texts.size()).is_sound();
}

std::string_view damage_of_model(std::string_view model) {
  constexpr std::uint64_t normalizer = 3, denormalizer = 5, table = 2;
  Fields fields(model);
  while (fields.next()) {
    if (fields.number != normalizer && fields.number != denormalizer) continue;
    Fields spec(fields.bytes);
    while (spec.next()) {
      if (spec.number == table && !is_sound_table(spec.bytes)) {
        return "its table of normalisation is damaged";
      }
    }
    if (spec.damaged) return "its normalizer is damaged";
  }
  return fields.damaged ? "it is not a protocol buffer" : "";
}

}  // namespace reelmesh
