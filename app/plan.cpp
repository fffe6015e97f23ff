#include <fmt/ranges.h>

#include <iostream>

#include "base/log.hpp"
#include "base/report.hpp"
#include "base/units.hpp"
#include "commands.hpp"
#include "ops/onednn.hpp"
#include "options.hpp"
#include "pipeline/outline.hpp"
#include "weights/json.hpp"

namespace reelmesh::app {
namespace {

using nlohmann::json;
using pipeline::Outline;

// What one rank of the plan has; `place` is its number there.
struct Row {
  const Outline& outline;
  std::size_t place;

  const ClipCost::OfRank& cost() const { return outline.cost.ranks.at(place); }
  const RankMemory& memory() const { return outline.memory.ranks.at(place); }
  int rank() const { return static_cast<int>(place); }

  std::vector<std::int64_t> text_layers() const {
    const Plan& plan = outline.plan;
    std::vector<std::int64_t> layers;
    for (std::size_t i = 0; i < plan.device_map.layer_rank.size(); ++i) {
      if (plan.text.first + plan.device_map.layer_rank[i] == rank()) {
        layers.push_back(static_cast<std::int64_t>(i));
      }
    }
    return layers;
  }
};

// A rank without a part in a stage has a box without axes.
bool has_part(const Box& box) { return !box.extent.empty() && !box.empty(); }

std::string shown(const Box& box) { return has_part(box) ? to_string(box) : "-"; }

std::string shown(const std::vector<std::int64_t>& layers) {
  if (layers.empty()) return "-";
  const bool together =
      layers.back() - layers.front() + 1 == static_cast<std::int64_t>(layers.size());
  return together ? fmt::format("{}-{}", layers.front(), layers.back())
                  : fmt::format("{}", fmt::join(layers, ","));
}

std::string shown(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

void print(const Outline& made) {
  double most = 0, all = 0;
  std::int64_t sent = 0;
  Table table({"rank", "node", "role", "text layers", "tokens", "decodes", "memory", "sent a step",
               "GFLOP a step"});
  for (std::size_t place = 0; place < made.launched.size(); ++place) {
    const Row row{made, place};
    const ClipCost::OfRank& cost = row.cost();
    most = std::max(most, cost.flops);
    all += cost.flops;
    sent += cost.sent_bytes;
    table.row({std::to_string(row.rank()), std::to_string(made.node[place]),
               made.plan.role(row.rank()), shown(row.text_layers()), shown(cost.tokens),
               shown(cost.images), shown(made.memory.peak(row.rank())), shown(cost.sent_bytes),
               fmt::format("{:.1f}", cost.flops * 1e-9)});
  }
  const VideoSize& size = made.clip.size;
  std::cout << made.text
            << fmt::format(
                   "{} {}; the first has {} frames of {} x {} and {} steps of {:.4g} GFLOP each, "
                   "{:.4g} on the fullest rank; all ranks together send {} a step\n\n",
                   made.clips, made.clips == 1 ? "clip" : "clips", size.frames, size.width,
                   size.height, made.clip.record.steps, all * 1e-9, most * 1e-9, shown(sent))
            << table.str() << std::flush;
}

json as_json(const Box& box) {
  if (!has_part(box)) return nullptr;
  return {{"offset", box.offset}, {"extent", box.extent}};
}

json as_json(const StageMemory& stage) {
  return {{"weights", stage.weights}, {"working", stage.working}};
}

json as_json(const Outline& made) {
  json ranks = json::array();
  for (std::size_t place = 0; place < made.launched.size(); ++place) {
    const Row row{made, place};
    const int rank = row.rank();
    const MemoryPlan& memory = made.memory;
    ranks.push_back({{"rank", rank},
                     {"launched_rank", made.launched[place]},
                     {"node", made.node[place]},
                     {"role", made.plan.role(rank)},
                     {"text_layers", row.text_layers()},
                     {"tokens", as_json(row.cost().tokens)},
                     {"text_tokens", as_json(row.cost().text)},
                     {"decodes", as_json(row.cost().images)},
                     {"step_sent_bytes", row.cost().sent_bytes},
                     {"step_flops", row.cost().flops},
                     {"memory",
                      {{"peak", memory.peak(rank)},
                       {"limit", memory.limits.empty() ? json() : json(memory.limits[place])},
                       {"text", memory.text(rank)},
                       {"denoise", memory.denoise(rank)},
                       {"decode", memory.decode(rank)},
                       {"parts",
                        {{"program", memory.program},
                         {"queue", row.memory().queue},
                         {"text", as_json(row.memory().text)},
                         {"denoise", as_json(row.memory().denoise)},
                         {"decode", as_json(row.memory().decode)}}}}}});
  }
  const auto range = [](const RankRange& r) {
    return json{{"first", r.first}, {"count", r.count}};
  };
  json denoise = json::array();
  for (const RankRange& replica : made.plan.denoise) denoise.push_back(range(replica));
  return {{"ranks", made.plan.ranks},
          {"mode", made.plan.mode == Mode::split ? "split" : "phased"},
          {"text", range(made.plan.text)},
          {"denoise", denoise},
          {"decode", range(made.plan.decode)},
          {"device_map", to_string(made.plan.device_map)},
          {"in_turn", made.plan.in_turn},
          {"clips", made.clips},
          {"clip",
           {{"frames", made.clip.size.frames},
            {"height", made.clip.size.height},
            {"width", made.clip.size.width},
            {"steps", made.clip.record.steps}}},
          {"description", made.text},
          {"by_rank", ranks}};
}

}  // namespace

Status plan_command(int argc, const char* const* argv) {
  const PlanOptions options = parse_plan(argc, argv);
  if (log::launch_rank() != 0) return Status::ok;  // under mpirun, one rank is enough
  pipeline::Conditions conditions;
  conditions.ranks = options.ranks;
  conditions.threads = options.job.threads.value_or(1);
  conditions.on_gpu = options.job.backend == Backend::cuda;
  conditions.products = ops::compute_dtype(options.job.dtype);
  const Outline made = pipeline::outline(options.job, conditions, options.ranks_per_node);
  if (options.json) {
    std::cout << as_json(made).dump(2) << std::endl;
  } else {
    print(made);
  }
  return Status::ok;
}

}  // namespace reelmesh::app
