#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.hpp"
#include "plan/plan.hpp"

namespace reelmesh {
namespace {

// At most the first 32 boxes, to keep the text readable.
std::string shown(const Layout& layout) {
  constexpr int max_boxes = 32;
  if (layout.ranks() <= max_boxes) return to_string(layout);
  std::vector<int> first;
  for (int rank = 0; rank < max_boxes; ++rank) first.push_back(rank);
  return fmt::format("{} and {} more (plan --json has all)", to_string(layout.of_ranks(first)),
                     layout.ranks() - max_boxes);
}

}  // namespace

std::string describe_queue(const Plan& plan) {
  if (plan.queue_bytes >= plan.embedding_bytes) return {};
  const auto size = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  const bool has_inputs = std::ranges::any_of(
      plan.memory.ranks, [](const RankMemory& rank) { return rank.encode.used(); });
  return fmt::format(
      "queue: at most {} of text embeddings{} wait at a time, of {} in all, to keep "
      "the limit{}\n",
      size(plan.queue_bytes), has_inputs ? " and encoded inputs" : "", size(plan.embedding_bytes),
      plan.roles.mode == Mode::split
          ? ""
          : "; the text encoder is loaded again each time the queue is empty");
}

std::string describe(const Plan& plan) {
  const Roles& roles = plan.roles;
  std::string text = fmt::format(
      "{} rank{}, {}\n", plan.ranks, plan.ranks == 1 ? "" : "s",
      roles.mode == Mode::split ? "split: stages side by side" : "phased: stages in turn");
  text += fmt::format("text: {}, layers {}\n", to_string(roles.text), to_string(plan.device_map));
  const std::size_t replicas = roles.first_helper();
  if (replicas == 1) {
    text += fmt::format("denoise: {}\n", to_string(roles.denoise.front()));
  } else if (replicas <= 16) {
    for (std::size_t i = 0; i < replicas; ++i) {
      text += fmt::format("denoise replica {}: {}\n", i, to_string(roles.denoise[i]));
    }
  } else {
    text += fmt::format("denoise: {} replicas of {} ranks each, the first on {}\n", replicas,
                        roles.denoise.front().count, to_string(roles.denoise.front()));
  }
  for (std::size_t i = replicas; i < roles.denoise.size(); ++i) {
    text += fmt::format("also denoise: {}, {}\n", to_string(roles.denoise[i]),
                        roles.denoise[i] == roles.text ? "after encoding all prompts"
                                                       : "while no latents wait for decoding");
  }
  if (roles.mode == Mode::split || roles.decode.size() == 1) {
    text += fmt::format("decode: {}{}\n", to_string(roles.decode.front()),
                        roles.decode.size() == 1
                            ? ""
                            : "; each replica decodes its own clips while these are busy");
  } else {
    text += fmt::format("decode: each replica, on {} of its ranks\n", roles.decode.front().count);
  }
  return text + describe(plan.weights) + describe_queue(plan);
}

std::string describe(const Plan& plan, std::size_t size) {
  const ClipPlan& clip = plan.sizes.at(size);
  const DenoiseLayout& layout = clip.denoise.front();
  std::string text = describe(plan);
  if (layout.attention_kind == AttentionKind::joint) {
    text += fmt::format("mesh: {} ({})\n", to_string(layout.mesh), clip.why);
    text += fmt::format("tokens [frame, row, column] {}\n", shown(layout.tokens));
    text += fmt::format("text tokens {}\n", shown(layout.text));
  } else {
    text +=
        fmt::format("tokens for spatial attention [frame, row, column] {}\n", shown(layout.tokens));
    text += fmt::format("tokens for temporal attention [frame, position] {}\n",
                        shown(layout.space_time->temporal));
  }
  for (const StepExchange& exchange : clip.exchanges) {
    text += fmt::format("{}: {} times a step, at most {} from a rank each time\n", exchange.name,
                        exchange.times, format_bytes(static_cast<double>(exchange.largest_bytes)));
  }
  if (!plan.rank_weights.empty()) {
    text += fmt::format("speeds: {}\n", fmt::join(plan.rank_weights, ", "));
  }
  return text;
}

}  // namespace reelmesh
