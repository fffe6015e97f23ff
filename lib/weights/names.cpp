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
// Those of Wan's own code, which ComfyUI's files and most LoRAs have, in blocks and elsewhere;
// before "weight" and "bias". Its norm3 is the one with weights, which diffusers calls norm2.
constexpr std::string_view wan_blocks = "blocks.";
constexpr std::array<Rename, 18> wan_in_blocks{{{".attn1.to_q.", ".self_attn.q."},
                                                {".attn1.to_k.", ".self_attn.k."},
                                                {".attn1.to_v.", ".self_attn.v."},
                                                {".attn1.to_out.0.", ".self_attn.o."},
                                                {".attn1.norm_q.", ".self_attn.norm_q."},
                                                {".attn1.norm_k.", ".self_attn.norm_k."},
                                                {".attn2.to_q.", ".cross_attn.q."},
                                                {".attn2.to_k.", ".cross_attn.k."},
                                                {".attn2.to_v.", ".cross_attn.v."},
                                                {".attn2.to_out.0.", ".cross_attn.o."},
                                                {".attn2.norm_q.", ".cross_attn.norm_q."},
                                                {".attn2.norm_k.", ".cross_attn.norm_k."},
                                                {".attn2.add_k_proj.", ".cross_attn.k_img."},
                                                {".attn2.add_v_proj.", ".cross_attn.v_img."},
                                                {".attn2.norm_added_k.", ".cross_attn.norm_k_img."},
                                                {".ffn.net.0.proj.", ".ffn.0."},
                                                {".ffn.net.2.", ".ffn.2."},
                                                {".norm2.", ".norm3."}}};
constexpr std::array<Rename, 10> wan_elsewhere{
    {{"condition_embedder.time_embedder.linear_1.", "time_embedding.0."},
     {"condition_embedder.time_embedder.linear_2.", "time_embedding.2."},
     {"condition_embedder.time_proj.", "time_projection.1."},
     {"condition_embedder.text_embedder.linear_1.", "text_embedding.0."},
     {"condition_embedder.text_embedder.linear_2.", "text_embedding.2."},
     {"condition_embedder.image_embedder.norm1.", "img_emb.proj.0."},
     {"condition_embedder.image_embedder.ff.net.0.proj.", "img_emb.proj.1."},
     {"condition_embedder.image_embedder.ff.net.2.", "img_emb.proj.3."},
     {"condition_embedder.image_embedder.norm2.", "img_emb.proj.4."},
     {"proj_out.", "head.head."}}};
// Whole ends of names: the tables of shifts, scales and gates.
constexpr Rename wan_table{"scale_shift_table", "modulation"};
constexpr Rename wan_last_table{"scale_shift_table", "head.modulation"};

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

using Side = std::string_view Rename::*;

/// A name of Wan's with the other side of its rename; empty if it has none.
std::string wan_name(const std::string& name, Side from, Side to) {
  if (name == wan_last_table.*from) return std::string(wan_last_table.*to);
  if (!name.starts_with(wan_blocks)) {
    for (const Rename& rename : wan_elsewhere) {
      if (!name.starts_with(rename.*from)) continue;
      std::string other = replaced(name, rename.*from, rename.*to);
      if (!other.empty()) return other;
    }
    return {};
  }
  const std::size_t after = name.find_first_not_of("0123456789", wan_blocks.size());
  if (after == std::string::npos || after == wan_blocks.size()) return {};
  const std::string block = name.substr(0, after), rest = name.substr(after);
  if (rest == fmt::format(".{}", wan_table.*from)) {
    return fmt::format("{}.{}", block, wan_table.*to);
  }
  for (const Rename& rename : wan_in_blocks) {
    if (!rest.starts_with(rename.*from)) continue;
    const std::string other = replaced(rest, rename.*from, rename.*to);
    if (!other.empty()) return block + other;
  }
  return {};
}

}  // namespace

std::vector<std::string> older_names(const std::string& name) {
  if (name == shared) return {std::string(embedding)};
  std::vector<std::string> found;
  const auto add = [&](std::string older) {
    if (!older.empty()) found.push_back(std::move(older));
  };
  for (const Rename& rename : attention) add(replaced(name, rename.current, rename.older));
  add(wan_name(name, &Rename::current, &Rename::older));
  return found;
}

std::string current_name(const std::string& name) {
  if (name == embedding) return std::string(shared);
  for (const Rename& rename : attention) {
    std::string current = replaced(name, rename.older, rename.current);
    if (!current.empty()) return current;
  }
  std::string current = wan_name(name, &Rename::older, &Rename::current);
  return current.empty() ? name : current;
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
