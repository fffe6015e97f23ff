#include "forecast/prediction.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "plan/step_time.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

[[noreturn]] void fail_without_link(const JobPlan& planned) {
  const Plan& plan = planned.plan;
  const MachineTimes& by = *planned.predicted_by.machine;
  const bool from_host = plan.weights.residence == Residence::host && plan.weights.fetched > 0;
  const bool between_nodes =
      std::ranges::adjacent_find(plan.node, std::ranges::not_equal_to()) != plan.node.end();
  const auto [name, what] =
      from_host && !by.host_memory   ? std::pair{"host", "with weights on the host"}
      : between_nodes && !by.network ? std::pair{"network", "with messages between nodes"}
                                     : std::pair{"node", "with messages within a node"};
  fail(Status::data, "{}: link.{} is missing in section [link], which a job {} needs", by.file,
       name, what);
}

// Of the ranks that have a part of the text encoder.
double median_of_texts(const Plan& plan) {
  std::vector<double> times;
  for (const Elapsed& rank : plan.text_time) {
    if (rank.total() > 0) times.push_back(rank.total());
  }
  if (times.empty()) return 0;
  std::ranges::sort(times);
  return (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
}

SizePrediction of_size(const JobPlan& planned, std::size_t size) {
  const Plan& plan = planned.plan;
  const Durations takes(planned, plan);
  const RankRange ranks = planned.train ? RankRange{0, plan.ranks} : plan.roles.denoise.front();
  const Elapsed step = step_time(plan, plan.sizes[size], ranks, *planned.predicted_by.machine);
  return {.encode = median_of_texts(plan),
          .input = takes.input(size),
          .step = planned.predicted_by.measured_step * step,
          .decode = takes.decode(size)};
}

// Of a training: loading as of clips, each sample is encoded once, and the steps.
Simulation training(const JobPlan& planned, const std::vector<SizePrediction>& sizes) {
  const Plan& plan = planned.plan;
  const Durations takes(planned, plan);
  Simulation result;
  for (const LoadedWeights& weights : loaded::all) {
    double max = 0;
    for (int rank = 0; rank < plan.ranks; ++rank) max = std::max(max, takes.load(weights, rank));
    result.load += max;
  }
  std::int64_t used = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    used = std::max(used, plan.memory.peak(rank) - plan.memory.program);
  }
  result.load += takes.touch(used);
  for (const ModelPart part : model_parts) result.load += takes.from_disk(part);
  double through = 0, slowest = 0, inputs = 0, steps = 0;
  for (const Elapsed& rank : plan.text_time) {
    through += rank.total();
    slowest = std::max(slowest, rank.total());
  }
  const auto clips = static_cast<double>(planned.clips.size());
  for (const ClipOutline& clip : planned.clips) {
    const SizePrediction& size = sizes[planned.size_index(clip)];
    inputs += size.input;
    steps += size.step.total();
  }
  result.begin = planned.predicted_by.machine->start + result.load + through +
                 (clips - 1) * slowest + inputs / static_cast<double>(plan.roles.decode.size());
  result.seconds = result.begin + static_cast<double>(planned.train->steps) * steps / clips;
  return result;
}

}  // namespace

double stated_error(const MachineTimes& machine) { return machine.measured ? 0.15 : 0.4; }

std::optional<Prediction> predict(const JobPlan& planned,
                                  const std::vector<BatchOutline>& batches) {
  const MachineTimes* by = planned.predicted_by.machine.get();
  if (by == nullptr) return std::nullopt;
  std::vector<SizePrediction> sizes;
  for (std::size_t size = 0; size < planned.plan.sizes.size(); ++size) {
    sizes.push_back(of_size(planned, size));
  }
  const Simulation played =
      planned.train ? training(planned, sizes) : simulate(planned, planned, batches);
  if (!ends(played.seconds)) fail_without_link(planned);
  Prediction p{.machine = by->name, .measured = by->measured, .load = played.load};
  p.job = std::max(played.seconds, by->start);
  p.encode = std::max(0.0, played.begin - by->start - played.load);
  p.make = p.job - by->start - p.load - p.encode;
  p.idle = played.idle;
  p.low = (1 - stated_error(*by)) * p.job;
  p.high = (1 + stated_error(*by)) * p.job;
  p.sizes = std::move(sizes);
  return p;
}

json describe(const Prediction& p, const JobPlan& planned) {
  json sizes = json::array();
  for (std::size_t size = 0; size < p.sizes.size(); ++size) {
    const SizePrediction& of = p.sizes[size];
    sizes.push_back({{"size", shown(planned.formats[size].size)},
                     {"encode_seconds", of.encode},
                     {"input_seconds", of.input},
                     {"step_seconds", of.step.total()},
                     {"step_parts",
                      {{"computation", of.step.computation},
                       {"memory", of.step.memory},
                       {"network", of.step.network}}},
                     {"decode_seconds", of.decode}});
  }
  return {{"machine", p.machine},
          {"measured", p.measured},
          {"job_seconds", p.job},
          {"job_seconds_low", p.low},
          {"job_seconds_high", p.high},
          {"load_seconds", p.load},
          {"encode_seconds", p.encode},
          {"make_seconds", p.make},
          {"idle", p.idle},
          {"sizes", sizes}};
}

}  // namespace reelmesh
