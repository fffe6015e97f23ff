#include "forecast/correction.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/report.hpp"
#include "base/units.hpp"
#include "forecast/loading.hpp"
#include "store/saved_job.hpp"
#include "store/saved_trace.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh {
namespace {

std::filesystem::path trace_of(const std::filesystem::path& folder) { return folder / "trace.h5"; }

// Of all ranks that took part in the same piece of work.
struct Together {
  double seconds = 0;  // of the slowest
  RankRange ranks;
  double flops = 0;  // of the first of them
};

void add(Together& all, const SavedSpan& span) {
  all.seconds = std::max(all.seconds, span.seconds);
  if (all.ranks.count == 0) {
    all.ranks.first = span.rank;
    all.flops = span.flops;
  }
  all.ranks.count = std::max(all.ranks.count, span.rank + 1 - all.ranks.first);
}

// What the trace says of the stages.
struct MeasuredStages {
  std::vector<double> load;                       // by rank
  std::map<std::pair<int, int>, Together> steps;  // by clip and step
  std::map<int, Together> decoded, written;       // by clip
  double encoding = 0;
  std::vector<std::int64_t> encoded;  // texts by rank
  double begin = never, end = 0;
};

MeasuredStages measured(const JobPlan& planned, const std::filesystem::path& path) {
  const auto ranks = static_cast<std::size_t>(planned.plan.ranks);
  MeasuredStages found;
  found.load.resize(ranks);
  found.encoded.resize(ranks);
  const auto is = [](const SavedSpan& span, const trace::SpanKind& kind) {
    return span.name == kind.name;
  };
  const std::size_t there = read_trace_ranks(path).size();
  require(there == ranks, Status::data, "{}: has {} ranks, expected the {} of job.h5",
          path.string(), there, ranks);
  read_trace(path, [&](const SavedSpan& span) {
    const auto rank = static_cast<std::size_t>(span.rank);
    found.begin = std::min(found.begin, span.start);
    found.end = std::max(found.end, span.start + span.seconds);
    if (is(span, trace::spans::load)) found.load[rank] += span.seconds;
    if (is(span, trace::spans::encode)) {
      found.encoding += span.seconds;
      ++found.encoded[rank];
    }
    if (is(span, trace::spans::denoise_step)) add(found.steps[{span.clip, span.step}], span);
    if (is(span, trace::spans::decode)) add(found.decoded[span.clip], span);
    if (is(span, trace::spans::write)) add(found.written[span.clip], span);
  });
  return found;
}

// The stages of the job, as predicted and as measured.
class Comparison {
 public:
  Comparison(const JobPlan& planned, const std::vector<BatchOutline>& batches,
             const EarlierRun& run)
      : planned_(planned), run_(run), measured_(measured(planned, trace_of(run.folder))) {
    for (const BatchOutline& batch : batches) batch_of_[batch.front().index] = &batch;
    for (const ClipOutline& clip : planned.clips) size_of_[clip.index] = planned.size_index(clip);
  }

  ComparedStage load() const {
    ComparedStage stage{"loading"};
    const Plan& plan = planned_.plan;
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      double predicted =
          static_cast<double>(plan.memory.peak(rank) - plan.memory.program) / machine().touch;
      for (const LoadedWeights& weights : loaded::all) {
        predicted +=
            seconds_to_load(planned_, weights, (plan.memory.ranks[i].*weights.stage).weights);
      }
      stage.predicted = std::max(stage.predicted, predicted);
      stage.measured = std::max(stage.measured, measured_.load[i]);
    }
    return stage;
  }

  ComparedStage encode() const {
    ComparedStage stage{"encoding"};
    for (std::size_t rank = 0; rank < measured_.encoded.size(); ++rank) {
      stage.predicted +=
          static_cast<double>(measured_.encoded[rank]) * planned_.plan.text_time[rank].total();
    }
    stage.measured = measured_.encoding;
    return stage;
  }

  ComparedStage steps() const {
    ComparedStage stage{"steps"};
    for (const auto& [key, step] : measured_.steps) {
      const auto batch = batch_of_.find(key.first);
      const auto [plan, replica] = replica_of(step.ranks);
      if (batch == batch_of_.end() || plan == nullptr) continue;
      const auto clips = static_cast<double>(batch->second->size());
      const std::size_t size = size_of_.at(key.first);
      require_same_operations(step, plan->sizes[size], clips);
      stage.measured += step.seconds;
      stage.predicted += clips * seconds_of_step(planned_, *plan, size, replica);
    }
    return stage;
  }

  ComparedStage decode() const {
    ComparedStage stage{"decoding"};
    for (const auto& [clip, decode] : measured_.decoded) {
      const auto [plan, replica] = replica_of(decode.ranks);
      if (!size_of_.contains(clip)) continue;
      stage.measured += decode.seconds;
      stage.predicted +=
          seconds_of_decode(planned_, plan == nullptr ? planned_.plan : *plan, size_of_.at(clip));
    }
    return stage;
  }

  ComparedStage write() const {
    ComparedStage stage{"writing"};
    for (const auto& [clip, write] : measured_.written) {
      if (!size_of_.contains(clip)) continue;
      const std::size_t size = size_of_.at(clip);
      stage.measured += write.seconds;
      stage.predicted += seconds_after_steps(planned_, planned_.plan, size) -
                         seconds_of_decode(planned_, planned_.plan, size);
    }
    return stage;
  }

  ComparedStage beside() const {
    return {"start and end", machine().start,
            std::max(0.0, run_.seconds - (measured_.end - measured_.begin))};
  }

 private:
  const MachineTimes& machine() const { return *planned_.predicted_by.machine; }

  // Of a step: those that are counted while it is run and while it is planned are the same.
  void require_same_operations(const Together& step, const ClipPlan& size, double clips) const {
    if (size.ranks.empty()) return;
    const double planned = size.ranks[static_cast<std::size_t>(step.ranks.first)].step.flops *
                           clips / static_cast<double>(size.workload.clips);
    require(std::abs(step.flops - planned) <= 0.01 * planned, Status::data,
            "{}: a step of rank {} has {:.4g} FLOP, expected {:.4g} by the plan: the trace is of "
            "another model or layout",
            trace_of(run_.folder).string(), step.ranks.first, step.flops, planned);
  }

  // The plan and the replica that these ranks are; null: none of them.
  std::pair<const Plan*, std::size_t> replica_of(const RankRange& ranks) const {
    for (const Plan* plan : {&planned_.plan, planned_.tail ? &*planned_.tail : nullptr}) {
      if (plan == nullptr) continue;
      const auto& replicas = plan->roles.denoise;
      const auto found = std::ranges::find(replicas, ranks);
      if (found != replicas.end()) {
        return {plan, static_cast<std::size_t>(found - replicas.begin())};
      }
    }
    return {nullptr, 0};
  }

  const JobPlan& planned_;
  const EarlierRun& run_;
  const MeasuredStages measured_;
  std::map<int, const BatchOutline*> batch_of_;  // by its first clip
  std::map<int, std::size_t> size_of_;           // by clip
};

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
  const Comparison of(planned, batches, run);
  const PredictedBy& by = planned.predicted_by;
  Correction correction{*by.machine, {}};
  MachineTimes& machine = correction.machine;
  // MeasuredStages by predicted; 1 for stages that were not measured.
  const auto ratio = [&](const ComparedStage& stage) {
    if (stage.measured <= 0 || stage.predicted <= 0) return 1.0;
    correction.stages.push_back(stage);
    return stage.measured / stage.predicted;
  };
  const double load = ratio(of.load());
  ratio(of.encode());
  const ComparedStage denoised = of.steps(), decoded = of.decode();
  const double steps = ratio(denoised), decode = ratio(decoded);
  const double write = ratio(of.write());
  const ComparedStage beside = of.beside();
  correction.stages.push_back(beside);
  require(
      denoised.measured > 0 || decoded.measured > 0, Status::data,
      "{}: found no steps and no decoding of the clips of job.h5, expected trace.level = stages",
      trace_of(run.folder).string());
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

std::string table_of(const Correction& correction) {
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
