#include "plan/describe.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace reelmesh {
namespace {

using nlohmann::json;

json describe(const Box& box) {
  if (box.empty()) return nullptr;
  return {{"offset", box.offset}, {"extent", box.extent}};
}

json describe(const RankRange& ranks) { return {{"first", ranks.first}, {"count", ranks.count}}; }

json describe(const std::vector<RankRange>& groups) {
  json all = json::array();
  for (const RankRange& group : groups) all.push_back(describe(group));
  return all;
}

// The boxes of the first ranks only: the others are those of `by_rank`.
json describe(const Layout& layout, const std::vector<const char*>& axes) {
  constexpr int max_boxes = 32;
  json boxes = json::array();
  for (int rank = 0; rank < std::min(layout.ranks(), max_boxes); ++rank) {
    boxes.push_back(describe(layout.box(rank)));
  }
  return {{"axes", axes}, {"shape", layout.global()}, {"ranks", layout.ranks()}, {"boxes", boxes}};
}

json describe(const StageMemory& stage) {
  return {{"weights", stage.weights}, {"working", stage.working}};
}

json describe(const ClipPlan& clip) {
  const DenoiseLayout& layout = clip.denoise.front();
  return {{"tokens", describe(layout.tokens, {"frame", "row", "column"})},
          {"text_tokens", describe(layout.text, {"token"})},
          {"mesh",
           {{"cfg", layout.mesh.cfg},
            {"ring", layout.mesh.ring},
            {"ulysses", layout.mesh.ulysses},
            {"why", clip.why}}}};
}

std::vector<std::int64_t> text_layers(const Plan& plan, int rank) {
  std::vector<std::int64_t> layers;
  const std::vector<int>& holders = plan.device_map.layer_rank;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    if (plan.roles.text.first + holders[i] == rank) layers.push_back(static_cast<std::int64_t>(i));
  }
  return layers;
}

}  // namespace

json describe(const MemoryPlan& memory) {
  json ranks = json::array();
  std::int64_t decoder = 0;
  bool unloads_text_encoder = false;
  for (int rank = 0; rank < static_cast<int>(memory.ranks.size()); ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const RankMemory& parts = memory.ranks[i];
    decoder = std::max(decoder, parts.decode.weights);
    unloads_text_encoder |= parts.text.weights > 0 && parts.denoise.weights > 0;
    ranks.push_back({{"rank", rank},
                     {"memory",
                      {{"peak", memory.peak(rank)},
                       {"limit", memory.limits.empty() ? json() : json(memory.limits[i])},
                       {"host", memory.on_gpu() ? json(memory.host_peak(rank)) : json()},
                       {"text", memory.text(rank)},
                       {"input", memory.encode(rank)},
                       {"denoise", memory.denoise(rank)},
                       {"decode", memory.decode(rank)},
                       {"parts",
                        {{"program", memory.program},
                         {"connections", parts.connections},
                         {"queue", parts.embeddings},
                         {"text", describe(parts.text)},
                         {"input", describe(parts.encode)},
                         {"denoise", describe(parts.denoise)},
                         {"decode", describe(parts.decode)}}}}}});
  }
  return {{"by_rank", ranks},
          {"threads", memory.threads},
          {"decoder_weights", decoder},
          {"unloads_text_encoder", unloads_text_encoder},
          {"offloads", memory.offloads},
          {"experts_in_turn", memory.experts_in_turn},
          {"unloads_decoder", memory.unloads_decoder}};
}

json describe_layout(const Plan& plan, std::size_t size) {
  const Roles& roles = plan.roles;
  return {{"ranks", plan.ranks},
          {"mode", roles.mode == Mode::split ? "split" : "phased"},
          {"text", describe(roles.text)},
          {"denoise", describe(roles.denoise)},
          {"decode", describe(roles.decode)},
          {"device_map", to_string(plan.device_map)},
          {"accelerate_device_map", json::parse(device_map_to_json(plan.device_map))},
          {"speeds", plan.rank_weights},
          {"weights",
           {{"residence", name_of(plan.weights.residence)},
            {"all", plan.weights.all},
            {"kept", plan.weights.kept},
            {"window", plan.weights.window},
            {"step_fetched", plan.weights.fetched}}},
          {"embedding_bytes", plan.embedding_bytes},
          {"queue_bytes", plan.queue_bytes},
          {"encodes_inputs",
           std::ranges::any_of(plan.memory.ranks,
                               [](const RankMemory& rank) { return rank.encode.used(); })},
          {"layout", describe(plan.sizes.at(size))}};
}

json describe(const Plan& plan, std::size_t size, bool trains) {
  json all = describe(plan.memory);
  all.update(describe_layout(plan, size));
  const RankRange counted = trains ? RankRange{0, plan.ranks} : plan.roles.denoise.front();
  const std::int64_t clips = trains ? 1 : plan.sizes[size].workload.clips;
  double flops = 0, max_flops = 0;
  std::int64_t sent = 0;
  for (json& row : all["by_rank"]) {
    const int rank = row["rank"];
    const auto i = static_cast<std::size_t>(rank);
    const StepCost& step = plan.sizes[size].ranks.at(i).step;
    row.update({{"launched_rank", number_of(plan.launched[i])},
                {"node", plan.node[i]},
                {"role", plan.roles.of(rank)},
                {"text_layers", text_layers(plan, rank)},
                {"tokens", describe(plan.tokens(size, rank))},
                {"text_tokens", describe(plan.text_tokens(size, rank))},
                {"decodes", describe(plan.decoded_latents(size, rank))},
                {"step_sent_bytes", step.sent_bytes + step.sent_weights},
                {"step_flops", step.flops}});
    if (!counted.contains(rank)) continue;
    flops += step.flops;
    max_flops = std::max(max_flops, step.flops);
    sent += step.sent_bytes + step.sent_weights;
  }
  const std::set<int> hosts(plan.node.begin(), plan.node.end());
  all.update({{"hosts", hosts.size()},
              {"step",
               {{"flops", flops / static_cast<double>(clips)},
                {"most_flops", max_flops / static_cast<double>(clips)},
                {"sent_bytes", sent / clips}}}});
  return all;
}

}  // namespace reelmesh
