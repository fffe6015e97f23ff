#include "weights/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "weights/json.hpp"

namespace reelmesh {
namespace {

struct Rename {
  std::string_view current, older;
};

// Parts of a name between that of the attention module and "weight" or "bias".
constexpr std::array<Rename, 4> attention{{{".to_q.", ".query."},
                                           {".to_k.", ".key."},
                                           {".to_v.", ".value."},
                                           {".to_out.0.", ".proj_attn."}}};
constexpr std::string_view shared = "shared.weight";
constexpr std::string_view embedding = "encoder.embed_tokens.weight";

/// `name` with `from` replaced by `to` if it ends in `from` and "weight" or "bias"; else empty.
std::string replaced(const std::string& name, std::string_view from, std::string_view to) {
  for (const std::string_view last : {"weight", "bias"}) {
    const std::string end = std::string(from) + std::string(last);
    if (name.ends_with(end)) {
      return name.substr(0, name.size() - end.size()) + std::string(to) + std::string(last);
    }
  }
  return {};
}

}  // namespace

std::vector<std::string> older_names(const std::string& name) {
  if (name == shared) return {std::string(embedding)};
  for (const Rename& rename : attention) {
    std::string older = replaced(name, rename.current, rename.older);
    if (!older.empty()) return {std::move(older)};
  }
  return {};
}

std::string current_name(const std::string& name) {
  if (name == embedding) return std::string(shared);
  for (const Rename& rename : attention) {
    std::string current = replaced(name, rename.older, rename.current);
    if (!current.empty()) return current;
  }
  return name;
}

std::string without_numbers(const std::string& name) {
  std::string text;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find_first_of("._", begin), name.size());
    const std::string word = name.substr(begin, end - begin);
    const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    std::string_view before = text;
    before.remove_suffix(std::min<std::size_t>(before.size(), 1));
    if (before.ends_with('s')) before.remove_suffix(1);
    const bool counts =
        before.ends_with("block") || before.ends_with("layer") || before.ends_with("resnet");
    text += (number && counts ? "*" : word) + name.substr(end, 1);
    begin = end + 1;
  }
  return text;
}

std::string grouped(const std::vector<std::string>& names) {
  constexpr std::size_t max_groups = 8;
  std::map<std::string, int> groups;
  for (const std::string& name : names) ++groups[without_numbers(name)];
  std::string text;
  std::size_t shown = 0;
  for (const auto& [pattern, count] : groups) {
    if (shown++ == max_groups)
      return text + fmt::format(" and {} more", groups.size() - max_groups);
    text += (text.empty() ? "" : ", ") + printable(pattern);
    if (count > 1) text += fmt::format(" ({})", count);
  }
  return text;
}

}  // namespace reelmesh
