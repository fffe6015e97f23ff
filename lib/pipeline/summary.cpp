#include "pipeline/summary.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/report.hpp"
#include "base/units.hpp"

namespace reelmesh::pipeline {
namespace {

constexpr std::size_t max_formats = 4;  // that have rows of their own

std::string shown(const VideoSize& size) {
  return fmt::format("{}x{}x{}", size.frames, size.height, size.width);
}

std::string shown(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string shown(const RankRange& ranks) {
  return ranks.count == 1 ? std::to_string(ranks.first)
                          : fmt::format("{}-{}", ranks.first, ranks.first + ranks.count - 1);
}

// All ranks of groups that follow one another in some order.
RankRange spanned_ranks(const std::vector<RankRange>& groups) {
  const int first = std::ranges::min(groups, {}, &RankRange::first).first;
  const RankRange& last = std::ranges::max(groups, {}, &RankRange::first);
  return {first, last.first + last.count - first};
}

// "8-31 (3 groups)"
std::string shown(const std::vector<RankRange>& groups) {
  const std::string ranks = shown(spanned_ranks(groups));
  return groups.size() == 1 ? ranks : fmt::format("{} ({} groups)", ranks, groups.size());
}

struct StageBytes {
  std::string largest, limits;  // of the ranks that take part; "-" where there are none
};

StageBytes stage_bytes(const MemoryPlan& memory, const RankRange& ranks,
                       StageMemory RankMemory::*stage,
                       const std::function<std::int64_t(int)>& of_rank) {
  std::int64_t largest = 0;
  std::vector<std::int64_t> limits;
  for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
    if (!(memory.ranks[static_cast<std::size_t>(rank)].*stage).used()) continue;
    largest = std::max(largest, of_rank(rank));
    if (!memory.limits.empty()) limits.push_back(memory.limits[static_cast<std::size_t>(rank)]);
  }
  StageBytes bytes{largest > 0 ? shown(largest) : "-", "-"};
  if (!limits.empty()) {
    const auto [min, max] = std::ranges::minmax(limits);
    bytes.limits = min == max ? shown(max) : fmt::format("{} to {}", shown(min), shown(max));
  }
  return bytes;
}

// How boxes cut an array: "frames 2 x rows 3", "whole", or the number of boxes where they are no
// grid.
std::string shown_cut(const Layout& layout, const std::vector<const char*>& axes) {
  std::set<std::pair<Shape, Shape>> distinct;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const Box& box = layout.box(rank);
    if (!box.empty()) distinct.insert({box.offset, box.extent});
  }
  const std::size_t boxes = distinct.size();
  std::size_t parts = 1;
  std::vector<std::string> cuts;
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    std::set<std::pair<std::int64_t, std::int64_t>> intervals;
    for (const auto& [offset, extent] : distinct) intervals.insert({offset[axis], extent[axis]});
    parts *= intervals.size();
    if (intervals.size() > 1) cuts.push_back(fmt::format("{} {}", axes[axis], intervals.size()));
  }
  if (parts != boxes) return fmt::format("{} boxes", boxes);
  return cuts.empty() ? "whole" : fmt::format("{}", fmt::join(cuts, " x "));
}

// "cfg 2 x ring 3", without axes of one rank.
std::string shown(const Mesh& mesh) {
  std::vector<std::string> axes;
  const auto add = [&](const char* name, int ranks) {
    if (ranks > 1) axes.push_back(fmt::format("{} {}", name, ranks));
  };
  add("cfg", mesh.cfg);
  add("ring", mesh.ring);
  add("ulysses", mesh.ulysses);
  return axes.empty() ? "whole" : fmt::format("{}", fmt::join(axes, " x "));
}

std::int64_t largest_box(const Layout& layout) {
  std::int64_t largest = 0;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    largest = std::max(largest, layout.box(rank).numel());
  }
  return largest;
}

struct Rows {
  const JobPlan& planned;
  Table& table;
  bool several = planned.formats.size() > 1;  // formats have a column
  bool limited = !planned.plan.memory.limits.empty();

  void add(const char* stage, const std::string& format, const std::string& ranks,
           const std::string& layout, const std::string& share, const StageBytes& memory) {
    std::vector<std::string> cells{stage};
    if (several) cells.push_back(format);
    for (const std::string& cell : {ranks, layout, share, memory.largest}) cells.push_back(cell);
    if (limited) cells.push_back(memory.limits);
    table.row(std::move(cells));
  }
};

void add_text(Rows& rows) {
  const Plan& plan = rows.planned.plan;
  const std::vector<int>& holders = plan.device_map.layer_rank;
  std::int64_t max_layers = 0;
  std::set<int> holding(holders.begin(), holders.end());
  for (const int holder : holding) {
    max_layers = std::max<std::int64_t>(max_layers, std::ranges::count(holders, holder));
  }
  rows.add("text", "", shown(plan.roles.text),
           holding.size() == 1 ? "whole" : fmt::format("layers on {} ranks", holding.size()),
           fmt::format("{} of {} layers", max_layers, holders.size()),
           stage_bytes(plan.memory, plan.roles.text, &RankMemory::text,
                       [&](int r) { return plan.memory.text(r); }));
}

// Only of clips that begin from images or videos.
void add_input(Rows& rows, std::size_t size) {
  const Plan& plan = rows.planned.plan;
  const ClipFormat& format = rows.planned.formats[size];
  if (format.input == InputKind::none) return;
  const Layout& frames = plan.sizes[size].decode.front().frames;
  rows.add(name_of(format.input), shown(format.size), shown(plan.roles.decode),
           shown_cut(frames.cropped(0, 0, 1), {"frames", "rows", "columns"}),
           fmt::format("{:.3g} % of the pixels", 100.0 * static_cast<double>(largest_box(frames)) /
                                                     static_cast<double>(numel(frames.global()))),
           stage_bytes(plan.memory, spanned_ranks(plan.roles.decode), &RankMemory::encode,
                       [&](int r) { return plan.memory.encode(r); }));
}

void add_denoise(Rows& rows, std::size_t size) {
  const Plan& plan = rows.planned.plan;
  const DenoiseLayout& layout = plan.sizes[size].denoise.front();
  rows.add(
      "denoise", shown(rows.planned.formats[size].size), shown(plan.roles.denoise),
      layout.attention_kind == AttentionKind::joint
          ? shown(layout.mesh)
          : shown_cut(layout.tokens, {"frames", "rows", "columns"}),
      fmt::format("{} of {} tokens", largest_box(layout.tokens), numel(layout.tokens.global())),
      stage_bytes(plan.memory, spanned_ranks(plan.roles.denoise), &RankMemory::denoise,
                  [&](int r) { return plan.memory.denoise(r); }));
}

void add_decode(Rows& rows, std::size_t size) {
  const Plan& plan = rows.planned.plan;
  const Layout& frames = plan.sizes[size].decode.front().frames;
  rows.add("decode", shown(rows.planned.formats[size].size), shown(plan.roles.decode),
           shown_cut(frames, {"frames", "rows", "columns"}),
           fmt::format("{:.3g} % of the pixels", 100.0 * static_cast<double>(largest_box(frames)) /
                                                     static_cast<double>(numel(frames.global()))),
           stage_bytes(plan.memory, spanned_ranks(plan.roles.decode), &RankMemory::decode,
                       [&](int r) { return plan.memory.decode(r); }));
}

}  // namespace

std::string summary(const JobPlan& planned) {
  const std::size_t formats = planned.formats.size();
  std::vector<std::string> header{"stage"};
  if (formats > 1) header.emplace_back("clips");
  for (const char* name : {"ranks", "divided by", "largest share", "largest memory"}) {
    header.emplace_back(name);
  }
  if (!planned.plan.memory.limits.empty()) header.emplace_back("limit");
  Table table(header, formats > 1 ? 4 : 3);
  Rows rows{planned, table};
  add_text(rows);
  for (std::size_t i = 0; i < std::min(formats, max_formats); ++i) add_input(rows, i);
  for (std::size_t i = 0; i < std::min(formats, max_formats); ++i) add_denoise(rows, i);
  for (std::size_t i = 0; i < std::min(formats, max_formats); ++i) add_decode(rows, i);
  std::string text = table.str();
  if (formats > max_formats) {
    text += fmt::format("and {} more formats of clips\n", formats - max_formats);
  }
  return text;
}

std::string describe_clips(const std::vector<ClipOutline>& clips, const ClipKinds& kinds) {
  const Clip& first = kinds[clips.front().kind];
  std::set<int> used;
  for (const ClipOutline& clip : clips) used.insert(clip.kind);
  const auto same = [&](const auto& member) {
    return std::ranges::all_of(used,
                               [&](int kind) { return member(kinds[kind]) == member(first); });
  };
  std::string text = fmt::format("{} clip{}", clips.size(), clips.size() == 1 ? "" : "s");
  text += same([](const Clip& clip) { return clip.format.size; })
              ? fmt::format(" of {} (frames x height x width)", shown(first.format.size))
              : " of several sizes";
  if (same([](const Clip& clip) { return clip.steps(); })) {
    text += fmt::format(", {} step{}", first.steps(), first.steps() == 1 ? "" : "s");
    // Those of video to video begin later.
    if (same([](const Clip& clip) { return clip.strength(); }) && first.strength()) {
      text += fmt::format(" ({} of them computed)", first.sampling.sampler->calls());
    }
  }
  return text;
}

}  // namespace reelmesh::pipeline
