#include "pipeline/plan_json.hpp"

#include <nlohmann/json.hpp>

namespace reelmesh::pipeline {
namespace {

using nlohmann::json;

json as_json(const Box& box) {
  if (box.empty()) return nullptr;
  return {{"offset", box.offset}, {"extent", box.extent}};
}

json as_json(const StageMemory& stage) {
  return {{"weights", stage.weights}, {"working", stage.working}};
}

}  // namespace

json as_json(const JobPlan& planned) {
  const Plan& plan = planned.plan;
  const MemoryPlan& memory = plan.memory;
  json ranks = json::array();
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const PlanRow row{planned, rank};
    ranks.push_back({{"rank", rank},
                     {"launched_rank", plan.launched[row.index()]},
                     {"node", plan.node[row.index()]},
                     {"role", plan.roles.of(rank)},
                     {"text_layers", row.text_layers()},
                     {"tokens", as_json(row.tokens())},
                     {"text_tokens", as_json(row.text_tokens())},
                     {"decodes", as_json(row.decodes())},
                     {"step_sent_bytes", row.cost().step.sent_bytes},
                     {"step_flops", row.cost().step.flops},
                     {"memory",
                      {{"peak", memory.peak(rank)},
                       {"limit", memory.limits.empty() ? json() : json(memory.limits[row.index()])},
                       {"text", memory.text(rank)},
                       {"input", memory.encode(rank)},
                       {"denoise", memory.denoise(rank)},
                       {"decode", memory.decode(rank)},
                       {"parts",
                        {{"program", memory.program},
                         {"queue", row.memory().embeddings},
                         {"text", as_json(row.memory().text)},
                         {"input", as_json(row.memory().encode)},
                         {"denoise", as_json(row.memory().denoise)},
                         {"decode", as_json(row.memory().decode)}}}}}});
  }
  const auto range = [](const RankRange& r) {
    return json{{"first", r.first}, {"count", r.count}};
  };
  json denoise = json::array();
  for (const RankRange& replica : plan.roles.denoise) denoise.push_back(range(replica));
  json decode = json::array();
  for (const RankRange& group : plan.roles.decode) decode.push_back(range(group));
  const Clip& clip = planned.kinds[0];  // that of the first clip
  return {{"ranks", plan.ranks},
          {"mode", plan.roles.mode == Mode::split ? "split" : "phased"},
          {"text", range(plan.roles.text)},
          {"denoise", denoise},
          {"helpers", plan.roles.helpers},
          {"queue_bytes", plan.queue_bytes},
          {"decode", decode},
          {"device_map", to_string(plan.device_map)},
          {"accelerate_device_map", json::parse(device_map_to_json(plan.device_map))},
          {"offloads", memory.offloads},
          {"unloads_decoder", memory.unloads_decoder},
          {"weights",
           {{"residence", name_of(plan.weights.residence)},
            {"all", plan.weights.all},
            {"kept", plan.weights.kept},
            {"window", plan.weights.window},
            {"step_fetched", plan.weights.fetched}}},
          {"clips", planned.clips.size()},
          {"clip",
           {{"frames", clip.format.size.frames},
            {"height", clip.format.size.height},
            {"width", clip.format.size.width},
            {"steps", clip.steps()}}},
          {"description", describe(planned)},
          {"by_rank", ranks}};
}

}  // namespace reelmesh::pipeline
