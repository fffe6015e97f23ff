#include <fmt/ranges.h>

#include <iostream>

#include "base/log.hpp"
#include "base/report.hpp"
#include "base/units.hpp"
#include "commands.hpp"
#include "ops/onednn.hpp"
#include "options.hpp"
#include "pipeline/summary.hpp"
#include "weights/json.hpp"

namespace reelmesh::app {
namespace {

using nlohmann::json;
using pipeline::JobPlan;

// The data of one rank of the plan, for the first clip of the job.
struct Row {
  const JobPlan& planned;
  int rank;
  std::size_t size = planned.size_of(planned.clips.front());

  const Plan& plan() const { return planned.plan; }
  std::size_t index() const { return static_cast<std::size_t>(rank); }
  const ClipPlan::OfRank& cost() const { return plan().sizes[size].ranks.at(index()); }
  const RankMemory& memory() const { return plan().memory.ranks.at(index()); }
  Box tokens() const { return plan().tokens(size, rank); }
  Box text_tokens() const { return plan().text_tokens(size, rank); }
  Box decodes() const { return plan().decoded_latents(size, rank); }

  std::vector<std::int64_t> text_layers() const {
    std::vector<std::int64_t> layers;
    const std::vector<int>& holders = plan().device_map.layer_rank;
    for (std::size_t i = 0; i < holders.size(); ++i) {
      if (plan().roles.text.first + holders[i] == rank) {
        layers.push_back(static_cast<std::int64_t>(i));
      }
    }
    return layers;
  }
};

std::string shown(const Box& box) { return box.empty() ? "-" : to_string(box); }

std::string shown(const std::vector<std::int64_t>& layers) {
  if (layers.empty()) return "-";
  const bool together =
      layers.back() - layers.front() + 1 == static_cast<std::int64_t>(layers.size());
  return together ? fmt::format("{}-{}", layers.front(), layers.back())
                  : fmt::format("{}", fmt::join(layers, ","));
}

std::string shown(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

void print(const JobPlan& planned, int batch) {
  double busiest = 0, all = 0;
  std::int64_t sent = 0;
  Table table({"rank", "node", "role", "text layers", "tokens", "decodes", "memory", "sent/step",
               "GFLOP/step"},
              3);
  const Plan& plan = planned.plan;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const Row row{planned, rank};
    const StepCost& step = row.cost().step;
    busiest = std::max(busiest, step.flops);
    all += step.flops;
    sent += step.sent_bytes;
    table.row({std::to_string(rank), std::to_string(plan.node[row.index()]), plan.roles.of(rank),
               shown(row.text_layers()), shown(row.tokens()), shown(row.decodes()),
               shown(plan.memory.peak(rank)), shown(step.sent_bytes),
               fmt::format("{:.4g}", step.flops * 1e-9)});
  }
  const std::vector<pipeline::Batch> batches = pipeline::batches_of(planned.clips, batch);
  std::cout << fmt::format("{}\n\n{}\n{}{}", describe_clips(planned.clips), summary(planned),
                           describe(planned), describe_schedule(planned, batches))
            << fmt::format(
                   "a step of one clip: {:.4g} GFLOP, {:.4g} on the busiest rank; {} sent by all "
                   "ranks together\n\n",
                   all * 1e-9, busiest * 1e-9, shown(sent))
            << table.str() << std::flush;
}

json as_json(const Box& box) {
  if (box.empty()) return nullptr;
  return {{"offset", box.offset}, {"extent", box.extent}};
}

json as_json(const StageMemory& stage) {
  return {{"weights", stage.weights}, {"working", stage.working}};
}

json as_json(const JobPlan& planned) {
  const Plan& plan = planned.plan;
  const MemoryPlan& memory = plan.memory;
  json ranks = json::array();
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const Row row{planned, rank};
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
                       {"denoise", memory.denoise(rank)},
                       {"decode", memory.decode(rank)},
                       {"parts",
                        {{"program", memory.program},
                         {"queue", row.memory().embeddings},
                         {"text", as_json(row.memory().text)},
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
  const pipeline::Clip& clip = planned.clips.front();
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
            {"steps", clip.record.steps}}},
          {"description", describe(planned)},
          {"by_rank", ranks}};
}

}  // namespace

Status plan_command(int argc, const char* const* argv) {
  const PlanOptions options = parse_plan(argc, argv);
  if (log::launch_rank() != 0) return Status::ok;  // under mpirun, only one rank prints
  const Job& job = options.job;
  std::vector<int> node_of;
  for (int rank = 0; rank < options.ranks; ++rank) {
    node_of.push_back(rank / options.ranks_per_node);
  }
  const pipeline::Conditions conditions =
      pipeline::conditions_of(job, options.ranks, job.threads.value_or(1), std::move(node_of),
                              ops::compute_dtype(job.dtype), job.backend == Backend::cuda);
  pipeline::Family::open(job.model)->check_weights();
  const JobPlan planned = pipeline::plan_job(job, conditions);
  pipeline::require_fit(job, planned, conditions);
  if (options.json) {
    std::cout << as_json(planned).dump(2) << std::endl;
  } else {
    print(planned, job.batch);
  }
  return Status::ok;
}

}  // namespace reelmesh::app
