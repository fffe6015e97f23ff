#include "forecast/describe.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "forecast/plan_job.hpp"
#include "ops/onednn.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

constexpr std::size_t max_formats = 4;  // that have rows of their own

// All ranks of groups that follow one another in some order.
RankRange spanned_ranks(const std::vector<RankRange>& groups) {
  const int first = std::ranges::min(groups, {}, &RankRange::first).first;
  const RankRange& last = std::ranges::max(groups, {}, &RankRange::first);
  return {first, last.first + last.count - first};
}

std::int64_t largest_box(const Layout& layout) {
  std::int64_t largest = 0;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    largest = std::max(largest, layout.box(rank).numel());
  }
  return largest;
}

// Of clips of this format; a training takes clips of the size that is asked for.
VideoSize made_size(const JobPlan& planned, std::size_t format) {
  const ClipFormat& asked = planned.formats[format];
  for (int kind = 0; kind < planned.kinds.size() && !planned.train; ++kind) {
    if (planned.kinds[kind].format == asked) return planned.kinds[kind].made_size();
  }
  return asked.size;
}

// A row a stage: its ranks, the axes along which they divide the work, and the largest share and
// the largest memory that one of them gets, with the least and the largest limit where there are
// limits. Stages of clips have a row for each of the first formats.
json stages(const JobPlan& planned) {
  const Plan& plan = planned.plan;
  const MemoryPlan& memory = plan.memory;
  json rows = json::array();
  const auto add = [&](const char* stage, const std::string& clips,
                       const std::vector<RankRange>& groups, const std::string& divided_by,
                       json share, StageMemory RankMemory::*used,
                       std::int64_t (MemoryPlan::*bytes)(int rank) const) {
    const RankRange ranks = spanned_ranks(groups);
    std::int64_t largest = 0;
    std::vector<std::int64_t> limits;
    for (int rank = ranks.first; rank < ranks.first + ranks.count; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      if (!(memory.ranks[i].*used).used()) continue;
      largest = std::max(largest, (memory.*bytes)(rank));
      if (!memory.limits.empty()) limits.push_back(memory.limits[i]);
    }
    json min_and_max;
    if (!limits.empty()) min_and_max = {std::ranges::min(limits), std::ranges::max(limits)};
    rows.push_back({{"stage", stage},
                    {"clips", clips},
                    {"ranks", {{"first", ranks.first}, {"count", ranks.count}}},
                    {"groups", groups.size()},
                    {"divided_by", divided_by},
                    {"largest_share", std::move(share)},
                    {"largest_memory", largest},
                    {"limits", min_and_max}});
  };
  const auto share = [](std::int64_t part, std::int64_t of, const char* what) {
    return json{{"part", part}, {"of", of}, {"what", what}};
  };
  const auto largest_share = [&](const Layout& layout, const char* what) {
    return share(largest_box(layout), numel(layout.global()), what);
  };
  const std::vector<int>& holders = plan.device_map.layer_rank;
  std::map<int, std::int64_t> layers;  // of each rank that has some
  for (const int holder : holders) ++layers[holder];
  std::int64_t max = 0;
  for (const auto& [rank, count] : layers) max = std::max(max, count);
  add("text", "", {plan.roles.text},
      layers.size() == 1 ? "whole" : fmt::format("layers on {} ranks", layers.size()),
      share(max, std::ssize(holders), "layers"), &RankMemory::text, &MemoryPlan::text);
  const std::size_t formats = std::min(planned.formats.size(), max_formats);
  for (std::size_t i = 0; i < formats; ++i) {
    const ClipFormat& format = planned.formats[i];
    const Layout& frames = plan.sizes[i].decode.front().frames;
    if (format.input == InputKind::none && !planned.train) continue;
    add(planned.train ? name_of(InputKind::video) : name_of(format.input),
        shown(made_size(planned, i)), plan.roles.decode, shown_cut(frames.cropped(0, 0, 1)),
        largest_share(frames, "pixels"), &RankMemory::encode, &MemoryPlan::encode);
  }
  for (std::size_t i = 0; i < formats; ++i) {
    const DenoiseLayout& layout = plan.sizes[i].denoise.front();
    add(planned.train ? "train" : "denoise", shown(made_size(planned, i)), plan.roles.denoise,
        layout.parts.empty() ? shown(layout.mesh) : shown_cut(layout.tokens),
        largest_share(layout.tokens, "tokens"), &RankMemory::denoise, &MemoryPlan::denoise);
  }
  for (std::size_t i = 0; i < formats && !planned.train; ++i) {
    const Layout& frames = plan.sizes[i].decode.front().frames;
    add("decode", shown(made_size(planned, i)), plan.roles.decode, shown_cut(frames),
        largest_share(frames, "pixels"), &RankMemory::decode, &MemoryPlan::decode);
  }
  return rows;
}

// How the batches are divided over the replicas; null with one replica, or nothing to make.
json schedule(const JobPlan& planned, const std::vector<BatchOutline>& batches) {
  const Roles& roles = planned.plan.roles;
  const std::size_t replicas = roles.denoise.size();
  if (roles.denoise.size() == 1 || batches.empty()) return nullptr;
  json last;
  if (planned.tail) {
    const std::vector<RankRange>& larger = planned.tail->roles.denoise;
    last = {{"batches", planned.tail_of(batches.size())},
            {"replicas", larger.size()},
            {"replica_ranks", larger.front().count}};
  }
  return {{"batches", batches.size() - planned.tail_of(batches.size())},
          {"replicas", replicas},
          {"idle", simulate(planned, planned, batches).idle},
          {"last", last}};
}

// "text+denoise+decode" → "text+train+encode"
std::string role_in_training(std::string role) {
  for (const auto& [from, to] : {std::pair<std::string_view, const char*>{"denoise", "train"},
                                 std::pair<std::string_view, const char*>{"decode", "encode"}}) {
    const std::size_t at = role.find(from);
    if (at != role.npos) role.replace(at, from.size(), to);
  }
  return role;
}

}  // namespace

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

std::string shown_cut(const Layout& layout) {
  constexpr std::array axes{"frames", "rows", "columns"};
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

json describe(const JobPlan& planned, const std::vector<BatchOutline>& batches,
              const std::optional<Prediction>& prediction) {
  const Clip& clip = planned.kinds[0];  // that of the first clip
  const VideoSize made = clip.made_size();
  const std::size_t size = planned.size_index(clip);
  json all = reelmesh::describe(planned.plan, size, planned.train.has_value());
  all.update(
      {{"device", planned.on_gpu ? "GPU" : "CPU"},
       {"products", planned.products},
       {"clips", planned.clips.size()},
       {"clip",
        {{"frames", made.frames},
         {"height", made.height},
         {"width", made.width},
         {"steps", clip.steps()},
         {"asked_frames", clip.format.size.frames},
         {"asked_height", clip.format.size.height},
         {"asked_width", clip.format.size.width}}},
       {"stages", stages(planned)},
       {"formats", planned.formats.size()},
       {"further_formats", planned.formats.size() - std::min(planned.formats.size(), max_formats)},
       {"schedule", schedule(planned, batches)}});
  if (const auto& cache = clip.cache()) {
    const auto& computed = clip.sampling.computed;
    all["cache"] = {{"rule", cache->text()},
                    {"computed", computed ? json(*computed) : json()},
                    {"description", computed ? computed_in_words(*computed)
                                             : "which steps are computed depends on values of "
                                               "the clip and is decided step by step"}};
    if (const auto& coefficients = clip.record.settings.cache_coefficients) {
      all["cache"]["coefficients"] = coefficients->values();
    }
  }
  if (planned.family->experts() > 1) {
    std::array<int, 2> steps{};
    for (int i = 0; i < clip.end_step(); ++i) {
      ++steps.at(
          static_cast<std::size_t>(planned.family->expert(clip.sampling.sampler->timestep(i))));
    }
    all["experts"] = {{"steps", steps}};
  }
  if (planned.train) {
    for (json& row : all["by_rank"]) row["role"] = role_in_training(row["role"]);
    all["training"] = {{"clips_of_step", planned.train->batch},
                       {"method", planned.train->method->name},
                       {"recomputes_blocks", planned.train->recomputes_blocks.value()},
                       {"encodes_images", planned.family->image_scale().has_value()}};
    if (const std::optional<LoraShape> lora = lora_shape(*planned.train)) {
      all["training"]["lora_rank"] = lora->rank;
      all["training"]["lora_targets"] = lora->targets;
      all["training"]["lora_rank_pattern"] = pattern_text(lora->ranks);
    }
  }
  if (prediction) all["predicted"] = describe(*prediction, planned);
  if (const std::size_t last = planned.tail_of(batches.size()); last > 0) {
    all["last_batches"] = {{"batches", last}, {"plan", describe_layout(*planned.tail, size)}};
  }
  all["description"] = plan_text(all);
  return all;
}

std::string training_text(const JobPlan& planned, std::int64_t clips) {
  std::vector<std::int64_t> counts(planned.formats.size());
  for (const ClipOutline& clip : planned.clips) {
    if (clip.index < clips) ++counts[planned.size_index(clip)];
  }
  std::string sizes;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    if (counts[i] < clips) sizes += fmt::format("{}{} ", sizes.empty() ? "" : ", ", counts[i]);
    sizes += fmt::format("of {}", shown(planned.formats[i].size));
  }
  return fmt::format(
      "training on {} clip{}{} {} (frames x height x width), {} in a step: {}; blocks {}", clips,
      clips == 1 ? "" : "s", counts.front() < clips ? "," : "", sizes, planned.train->batch,
      planned.train->method->text(*planned.train),
      planned.train->recomputes_blocks.value() ? "are computed again for gradients"
                                               : "keep what gradients need");
}

std::string clips_text(const std::vector<ClipOutline>& clips, const ClipKinds& kinds) {
  const Clip& first = kinds[clips.front().kind];
  std::set<int> used;
  for (const ClipOutline& clip : clips) used.insert(clip.kind);
  const auto same = [&](const auto& member) {
    return std::ranges::all_of(used,
                               [&](int kind) { return member(kinds[kind]) == member(first); });
  };
  std::string text = fmt::format("{} clip{}", clips.size(), clips.size() == 1 ? "" : "s");
  const VideoSize made = first.made_size(), &asked = first.format.size;
  if (!same([](const Clip& clip) { return clip.made_size(); })) {
    text += " of several sizes";
  } else if (made != asked && same([](const Clip& clip) { return clip.format.size; })) {
    text +=
        fmt::format(" of {} (frames x height x width; asked for: {})", shown(made), shown(asked));
  } else {
    text += fmt::format(" of {} (frames x height x width)", shown(made));
  }
  if (same([](const Clip& clip) { return clip.steps(); })) {
    text += fmt::format(", {} step{}", first.steps(), first.steps() == 1 ? "" : "s");
    // Those of video to video begin later.
    if (same([](const Clip& clip) { return clip.strength(); }) && first.strength()) {
      text += fmt::format(" ({} of them computed)", first.sampling.sampler->calls());
    }
    const auto left_after = [&](const ClipOutline& clip) {
      const Clip& like = kinds[clip.kind];
      return like.is_left(clip.saved_step) ? like.end_step(clip.saved_step) : 0;
    };
    const std::int64_t end = left_after(clips.front());
    if (end > 0 && std::ranges::all_of(
                       clips, [&](const ClipOutline& clip) { return left_after(clip) == end; })) {
      text += fmt::format(", left after {} of them with a preview", end);
    }
  }
  return text;
}

}  // namespace reelmesh
