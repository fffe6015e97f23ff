#include "forecast/correction.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/report.hpp"
#include "base/units.hpp"
#include "forecast/simulation.hpp"
#include "store/saved_job.hpp"
#include "store/saved_trace.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh {
namespace {

std::filesystem::path trace_of(const std::filesystem::path& folder) { return folder / "trace.h5"; }

// Of all ranks that took part in the same piece of work.
struct Together {
  double seconds = 0;  // of the slowest
  int first = -1;      // of the ranks
  double flops = 0;    // of the first of them
};
using Pieces = std::map<std::pair<int, int>, Together>;  // by clip and step

// What the spans of a job say of its stages.
struct Stages {
  std::vector<double> load;  // by rank
  double encoding = 0;
  Pieces steps, decoded, written;
  double begin = never, end = 0;

  void add(const SavedSpan& span) {
    const auto is = [&](const trace::SpanKind& kind) { return span.name == kind.name; };
    // What is before, between and beside the stages.
    if (is(trace::spans::prepare) || is(trace::spans::wait) || is(trace::spans::write_trace)) {
      return;
    }
    begin = std::min(begin, span.start);
    end = std::max(end, span.start + span.seconds);
    if (is(trace::spans::load)) load[static_cast<std::size_t>(span.rank)] += span.seconds;
    if (is(trace::spans::encode)) encoding += span.seconds;
    Pieces* const pieces = is(trace::spans::denoise_step) ? &steps
                           : is(trace::spans::decode)     ? &decoded
                           : is(trace::spans::write)      ? &written
                                                          : nullptr;
    if (pieces == nullptr) return;
    Together& all = (*pieces)[{span.clip, span.step}];
    all.seconds = std::max(all.seconds, span.seconds);
    if (all.first >= 0) return;
    all.first = span.rank;
    all.flops = span.flops;
  }
};

Stages measured_stages(const JobPlan& planned, const std::filesystem::path& path) {
  Stages stages;
  stages.load.resize(static_cast<std::size_t>(planned.plan.ranks));
  const std::size_t there = read_trace_ranks(path).size();
  require(there == stages.load.size(), Status::data, "{}: has {} ranks, expected the {} of job.h5",
          path.string(), there, stages.load.size());
  read_trace(path, [&](const SavedSpan& span) { stages.add(span); });
  return stages;
}

Stages predicted_stages(const JobPlan& planned, const std::vector<BatchOutline>& batches) {
  constexpr auto each = std::numeric_limits<std::int64_t>::max();
  const Simulation played = simulate(planned, planned, batches, {}, each);
  Stages stages;
  stages.load.resize(played.spans.size());
  for (std::size_t rank = 0; rank < played.spans.size(); ++rank) {
    for (const trace::Span& span : played.spans[rank]) {
      stages.add({.name = span.name,
                  .rank = static_cast<int>(rank),
                  .clip = span.clip,
                  .step = span.step,
                  .start = 1e-9 * static_cast<double>(span.start_ns),
                  .seconds = 1e-9 * static_cast<double>(span.duration_ns),
                  .flops = static_cast<double>(span.flops)});
    }
  }
  return stages;
}

// Of the pieces that both have.
ComparedStage compared(const char* name, const Pieces& predicted, const Pieces& measured) {
  ComparedStage stage{name};
  for (const auto& [key, mine] : measured) {
    const auto other = predicted.find(key);
    if (other == predicted.end()) continue;
    stage.measured += mine.seconds;
    stage.predicted += other->second.seconds;
  }
  return stage;
}

// Of a step: those that are counted while it is run and while it is planned are the same.
void require_same_operations(const Pieces& predicted, const Pieces& measured,
                             const std::filesystem::path& trace) {
  for (const auto& [key, step] : measured) {
    const auto other = predicted.find(key);
    if (other == predicted.end()) continue;
    const double planned = other->second.flops;
    require(std::abs(step.flops - planned) <= 0.01 * planned, Status::data,
            "{}: a step of rank {} has {:.4g} FLOP, expected {:.4g} by the plan: the trace is of "
            "another model or layout",
            trace.string(), step.first, step.flops, planned);
  }
}

// A number of a plan that was printed as JSON.
int number_of(const nlohmann::json& value) {
  const auto number = value.get<std::int64_t>();
  require(number >= 1 && number <= 65536, Status::data, "found {}, expected 1 to 65536", number);
  return static_cast<int>(number);
}

// The layout of the plan, as options that leave no choice.
ParallelRequest layout_of(const nlohmann::json& plan, ParallelRequest request) {
  request.mode = plan.at("mode") == "split" ? Mode::split : Mode::phased;
  if (request.mode == Mode::split) {
    request.text = number_of(plan.at("text").at("count"));
    request.decode = number_of(plan.at("decode").at(0).at("count"));
  }
  request.replicas = static_cast<int>(plan.at("denoise").size());
  const nlohmann::json& mesh = plan.at("layout").at("mesh");
  request.cfg = number_of(mesh.at("cfg"));
  request.ring = number_of(mesh.at("ring"));
  request.ulysses = number_of(mesh.at("ulysses"));
  return request;
}

// seconds × ratio of these operations.
void scale(DTypeTimes& times, double ratio, std::initializer_list<std::string_view> kinds) {
  for (const std::string_view kind : kinds) {
    const auto known = times.operations.find(kind);
    if (known == times.operations.end()) continue;
    const std::span<const TimedOperation> before = known->second.known();
    std::vector<TimedOperation> scaled(before.begin(), before.end());
    for (TimedOperation& operation : scaled) operation.seconds *= ratio;
    known->second = std::move(scaled);
  }
}

}  // namespace

EarlierRun read_run(const std::filesystem::path& folder, const ParallelRequest& parallel) {
  const std::filesystem::path index = folder / "job.h5";
  const SavedJob saved = read_job(index);
  require(saved.measured_seconds && *saved.measured_seconds > 0, Status::data,
          "{}: found no time of the whole job (measured_seconds), expected a job that has ended",
          index.string());
  EarlierRun run{folder, *saved.measured_seconds, parallel, {}, 1};
  std::map<std::string, int> nodes;
  for (const SavedRank& rank : read_trace_ranks(trace_of(folder))) {
    run.node_of.push_back(
        nodes.try_emplace(rank.host, static_cast<int>(nodes.size())).first->second);
    run.threads = std::max(run.threads, rank.threads);
  }
  try {
    run.parallel = layout_of(nlohmann::json::parse(saved.plan_json), parallel);
  } catch (const std::exception& error) {  // of JSON, or number_of()
    fail(Status::data, "{}: its plan (plan_json) cannot be read: {}", index.string(), error.what());
  }
  return run;
}

Correction corrected(const JobPlan& planned, const std::vector<BatchOutline>& batches,
                     const EarlierRun& run) {
  const std::filesystem::path trace = trace_of(run.folder);
  const Stages measured = measured_stages(planned, trace);
  const Stages predicted = predicted_stages(planned, batches);
  require_same_operations(predicted.steps, measured.steps, trace);
  const PredictedBy& by = planned.predicted_by;
  Correction correction{*by.machine, {}};
  MachineTimes& machine = correction.machine;
  // Measured by predicted; 1 for stages that were not measured.
  const auto ratio = [&](const ComparedStage& stage) {
    if (stage.measured <= 0 || stage.predicted <= 0) return 1.0;
    correction.stages.push_back(stage);
    return stage.measured / stage.predicted;
  };
  const double load =
      ratio({"loading", std::ranges::max(predicted.load), std::ranges::max(measured.load)});
  ratio({"encoding", predicted.encoding, measured.encoding});
  const ComparedStage denoised = compared("steps", predicted.steps, measured.steps);
  const ComparedStage decoded = compared("decoding", predicted.decoded, measured.decoded);
  const double steps = ratio(denoised), decode = ratio(decoded);
  const double write = ratio(compared("writing", predicted.written, measured.written));
  const ComparedStage beside{"start and end", machine.start,
                             std::max(0.0, run.seconds - (measured.end - measured.begin))};
  correction.stages.push_back(beside);
  require(
      denoised.measured > 0 || decoded.measured > 0, Status::data,
      "{}: found no steps and no decoding of the clips of job.h5, expected trace.level = stages",
      trace.string());
  for (auto* dtypes : {&machine.alone, &machine.shared}) {
    const auto times = dtypes->find(by.dtype);
    if (times == dtypes->end()) continue;
    scale(times->second, steps,
          {trace::spans::product.name, trace::spans::attention.name,
           trace::spans::attention_backward.name, trace::spans::norm.name, operation_kinds::copy});
    scale(
        times->second, decode,
        {trace::spans::convolution.name, operation_kinds::group_norm, operation_kinds::group_sums});
    times->second.load /= load;
    times->second.load_convolutions /= load;
  }
  machine.touch /= load;
  machine.write /= write;
  machine.start = beside.measured;
  machine.measured = true;
  machine.source += fmt::format("{}corrected by a job of {} ranks",
                                machine.source.empty() ? "" : ", ", planned.plan.ranks);
  return correction;
}

std::string correction_text(const Correction& correction) {
  Table table({"stage", "predicted", "measured", "ratio"}, 1);
  for (const ComparedStage& stage : correction.stages) {
    table.row(
        {stage.name, format_short_seconds(stage.predicted), format_short_seconds(stage.measured),
         stage.predicted > 0 ? fmt::format("{:.2f}", stage.measured / stage.predicted) : "-"});
  }
  return table.str();
}

nlohmann::json describe(const Correction& correction) {
  nlohmann::json stages = nlohmann::json::array();
  for (const ComparedStage& stage : correction.stages) {
    stages.push_back({{"stage", stage.name},
                      {"predicted_seconds", stage.predicted},
                      {"measured_seconds", stage.measured}});
  }
  return {{"stages", stages}};
}

}  // namespace reelmesh
