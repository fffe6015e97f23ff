#include "forecast/prediction.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "forecast/describe.hpp"
#include "forecast/loading.hpp"
#include "plan/step_time.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

// What jobs have been within, of those in tests/bench/README.md; of published figures, a guess.
constexpr double error_if_measured = 0.15, error_if_published = 0.4;

class Predicted {
 public:
  Predicted(const JobPlan& planned, const std::vector<BatchOutline>& batches)
      : planned_(planned), batches_(batches), by_(*planned.predicted_by.machine) {
    for (std::size_t size = 0; size < planned.plan.sizes.size(); ++size) {
      sizes_.push_back(of_size(size));
    }
  }

  Prediction all() const {
    Prediction p;
    p.machine = by_.name;
    p.measured = by_.measured;
    p.sizes = sizes_;
    p.load = load();
    p.encode = encode();
    if (planned_.train) {
      p.make = training();
    } else {
      p.make = make();
      p.idle = task_schedule(planned_, batches_).idle;
    }
    p.job = by_.start + p.load + p.encode + p.make;
    if (!ends(p.job)) fail_without_link();
    const double error = by_.measured ? error_if_measured : error_if_published;
    p.low = (1 - error) * p.job;
    p.high = (1 + error) * p.job;
    return p;
  }

 private:
  [[noreturn]] void fail_without_link() const {
    const Plan& plan = planned_.plan;
    const bool from_host = plan.weights.residence == Residence::host && plan.weights.fetched > 0;
    const bool between_nodes =
        std::ranges::adjacent_find(plan.node, std::ranges::not_equal_to()) != plan.node.end();
    const auto [name, what] =
        from_host && !by_.host_memory   ? std::pair{"host", "with weights on the host"}
        : between_nodes && !by_.network ? std::pair{"network", "with messages between nodes"}
                                        : std::pair{"node", "with messages within a node"};
    fail(Status::data, "{}: link.{} is missing in section [link], which a job {} needs", by_.file,
         name, what);
  }

  SizePrediction of_size(std::size_t size) const {
    const Plan& plan = planned_.plan;
    const ClipPlan& clip = plan.sizes[size];
    const RankRange ranks = planned_.train ? RankRange{0, plan.ranks} : plan.roles.denoise.front();
    SizePrediction p;
    p.encode = median_of_texts();
    p.step = step_time(plan, clip, ranks, by_);
    if (clip.ranks.empty()) p.step.computation = clip.whole_seconds / ranks.count;
    p.step = planned_.predicted_by.measured_step * p.step;
    p.input = seconds_of_input(plan, size);
    p.decode = seconds_of_decode(planned_, plan, size);
    return p;
  }

  // Of the ranks that have a part of the text encoder.
  double median_of_texts() const {
    std::vector<double> times;
    for (const Elapsed& rank : planned_.plan.text_time) {
      if (rank.total() > 0) times.push_back(rank.total());
    }
    if (times.empty()) return 0;
    std::ranges::sort(times);
    return (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
  }

  double load() const {
    double seconds = touching();
    for (const LoadedWeights& weights : loaded::all) {
      std::int64_t most = 0;
      for (const RankMemory& rank : planned_.plan.memory.ranks) {
        most = std::max(most, (rank.*weights.stage).weights);
      }
      seconds += seconds_to_load(planned_, weights, most);
    }
    for (const ModelPart part : {ModelPart::text_encoder, ModelPart::transformer, ModelPart::vae}) {
      seconds += seconds_from_disk(planned_, part);
    }
    return seconds;
  }

  // The first use of all memory that a rank has at its peak, of which loading is most.
  double touching() const {
    const MemoryPlan& memory = planned_.plan.memory;
    std::int64_t most = 0;
    for (int rank = 0; rank < planned_.plan.ranks; ++rank) {
      most = std::max(most, memory.peak(rank) - memory.program);
    }
    return static_cast<double>(most) / by_.touch;
  }

  // Texts pass through the ranks that have layers, one after the other.
  double encode() const {
    double through = 0, slowest = 0;
    for (const Elapsed& rank : planned_.plan.text_time) {
      through += rank.total();
      slowest = std::max(slowest, rank.total());
    }
    const auto texts = static_cast<double>(planned_.predicted_by.texts);
    double seconds = texts > 0 ? through + (texts - 1) * slowest : 0;
    for (const ClipOutline& clip : planned_.clips) {
      if (!planned_.kinds[clip.kind].input && !planned_.train) continue;
      seconds += sizes_[planned_.size_index(clip)].input /
                 static_cast<double>(planned_.plan.roles.decode.size());
    }
    return seconds;
  }

  // In split mode one group decodes all clips: it ends after the last one, and not before it has
  // decoded all.
  double make() const {
    const double denoised = seconds_of_tasks(planned_, batches_);
    if (planned_.plan.roles.mode == Mode::phased || batches_.empty()) return denoised;
    double decoding = 0, last = 0;
    for (const BatchOutline& batch : batches_) {
      last = seconds_after_steps(planned_, planned_.plan, planned_.size_index(batch.front()));
      decoding += static_cast<double>(batch.size()) * last;
    }
    const TaskSchedule schedule = task_schedule(planned_, batches_);
    return std::max(denoised + last, schedule.turns.front().end + decoding);
  }

  double training() const {
    std::vector<double> clips(planned_.formats.size());
    for (const ClipOutline& clip : planned_.clips) ++clips[planned_.size_index(clip)];
    double sum = 0, count = 0;
    for (std::size_t size = 0; size < clips.size(); ++size) {
      sum += clips[size] * sizes_[size].step.total();
      count += clips[size];
    }
    return static_cast<double>(planned_.train->steps) * sum / count;
  }

  const JobPlan& planned_;
  const std::vector<BatchOutline>& batches_;
  const MachineTimes& by_;
  std::vector<SizePrediction> sizes_;
};

}  // namespace

std::optional<Prediction> predict(const JobPlan& planned,
                                  const std::vector<BatchOutline>& batches) {
  if (planned.predicted_by.machine == nullptr) return std::nullopt;
  return Predicted(planned, batches).all();
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
