#include "pipeline/tuning.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.hpp"
#include "base/stop.hpp"
#include "base/units.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "forecast/plan_job.hpp"
#include "pipeline/clip_states.hpp"

namespace reelmesh::pipeline {
namespace {

constexpr std::size_t max_layouts = 3;

std::string name_of(const ComparedPlan& plan) {
  return fmt::format("{}, {} weights", plan.layout, plan.weights);
}

// What differs between the requests of compare_plans(), for a message.
struct Asked {
  Mode mode = Mode::automatic;
  WeightsChoice weights = WeightsChoice::automatic;
  Shard shard = Shard::automatic;
  std::array<int, 7> counts{};  // 0: not given
};

std::array<std::optional<int> ParallelRequest::*, 7> counts_of_requests() {
  using R = ParallelRequest;
  return {&R::text, &R::replicas, &R::cfg, &R::ulysses, &R::ring, &R::decode, &R::group};
}

Asked asked_of(const ParallelRequest& request) {
  Asked choice{request.mode, request.weights, request.shard};
  std::ranges::transform(counts_of_requests(), choice.counts.begin(),
                         [&](auto count) { return (request.*count).value_or(0); });
  return choice;
}

ParallelRequest with(ParallelRequest request, const Asked& choice) {
  request.mode = choice.mode;
  request.weights = choice.weights;
  request.shard = choice.shard;
  for (std::size_t i = 0; i < choice.counts.size(); ++i) {
    if (choice.counts[i] > 0) request.*counts_of_requests()[i] = choice.counts[i];
  }
  return request;
}

}  // namespace

Tuning::Tuning(const Job& job, JobPlan& planned, const Conditions& conditions, const Devices& found,
               const comm::Group& world, std::span<const ClipOutline> clips)
    : job_(job), planned_(planned), world_(world), device_(found.device) {
  choose_batches(clips);
  const int max = std::min<int>(max_layouts, (steps_left_ - 1) / StepTrial::steps);
  if (max < 2) {
    log::info(
        "tuning: no layout is timed: {} of the steps of a clip are left, expected at least {}",
        steps_left_, 2 * StepTrial::steps + 1);
    return;
  }
  choose_layouts_together(conditions, found, clips, static_cast<std::size_t>(max));
  if (!has_choice()) {
    log::info("tuning: nothing to compare: the options and {} rank{} leave one layout",
              world.size(), world.size() == 1 ? "" : "s");
  }
}

// The first batches, of clips of one size and of equal number.
void Tuning::choose_batches(std::span<const ClipOutline> clips) {
  const auto left = [&](const BatchOutline& batch) {
    return static_cast<int>(planned_.end_step(batch.front())) - batch.front().saved_step;
  };
  for (BatchOutline& batch : ordered_batches(planned_, clips, job_.batch)) {
    if (batches_.empty()) {
      size_ = planned_.size_index(batch.front());
      steps_left_ = left(batch);
    }
    const bool is_like_first =
        batches_.empty() || (planned_.size_index(batch.front()) == size_ &&
                             batch.size() == batches_.front().size() && left(batch) >= steps_left_);
    if (is_like_first) batches_.push_back(std::move(batch));
    if (std::ssize(batches_) == world_.size()) break;
  }
}

void Tuning::add_planned(ComparedPlan shown) {
  const double predicted = shown.prediction.sizes.at(size_).step.total();
  layouts_.push_back({.shown = std::move(shown), .layout = planned_, .predicted = predicted});
}

// The first rank compares: predicted times depend on what its system has read of the checkpoint.
void Tuning::choose_layouts_together(const Conditions& conditions, const Devices& found,
                                     std::span<const ClipOutline> clips, std::size_t max) {
  const std::vector<BatchOutline> batches = form_batches(clips, planned_.kinds, job_.batch);
  add_planned(in_short(planned_, batches));
  std::set<std::string> seen{layouts_.front().shown.layout};
  std::vector<Asked> choices;
  comm::run_on_first_rank(world_, [&] {
    try {
      for (const ComparedPlan& plan : compare_plans(planned_, job_, conditions, clips)) {
        if (seen.insert(plan.layout).second) choices.push_back(asked_of(plan.request));
      }
    } catch (const Error& error) {
      if (error.status() != Status::unavailable) throw;  // none fits as it should
    }
  });
  for (const Asked& choice : comm::broadcast_values(world_, choices, 0)) {
    if (layouts_.size() == max) break;
    const auto add = [&](const ParallelRequest&) {
      if (planned_.plan.launched != layouts_.front().layout.plan.launched) return;
      try {
        (void)require_plan_fits_together(job_, planned_, conditions, found);
      } catch (const Error& error) {
        if (error.status() != Status::unavailable) throw;
        return;
      }
      add_planned(in_short(planned_, batches));
    };
    for_each_plan(planned_, job_, conditions, {with(job_.parallel, choice)}, add);
  }
  use(layouts_.front());
}

void Tuning::use(const Layout& layout) { static_cast<JobLayout&>(planned_) = layout.layout; }

MadeClips Tuning::time_together(std::vector<ClipOutline>& clips, TraceWriter* traces) {
  const stop::NeverLeave something_is_made;
  const std::int64_t start = trace::now_ns();
  // Layouts with many replicas first: then all texts are encoded at once.
  std::vector<Layout*> in_turn;
  for (Layout& layout : layouts_) in_turn.push_back(&layout);
  std::ranges::stable_sort(in_turn, std::ranges::greater(), &Layout::replicas);
  MadeClips made;
  for (Layout* layout : in_turn) {
    if (batches_.empty()) break;  // their clips have failed
    MadeClips steps = make_steps_together(*layout, traces);
    steps.complete = world_.max(std::int64_t{stop::requested() ? 1 : 0}) == 0;
    made.append(steps);
    if (!made.complete) {
      use(layouts_.front());
      return made;
    }
    take_steps_together(steps, clips);
    log::info("tuning: {}: a step takes {}, predicted {}", name_of(layout->shown),
              layout->measured > 0 ? format_short_seconds(layout->measured) : "an unknown time",
              format_short_seconds(layout->predicted));
  }
  choose_together(clips);
  seconds_ = 1e-9 * static_cast<double>(trace::now_ns() - start);
  log::info("tuning: kept {}; this took {}", name_of(layouts_[kept_].shown),
            format_short_seconds(seconds_));
  return made;
}

// A batch for each replica, so that they disturb each other as in the job.
MadeClips Tuning::make_steps_together(Layout& layout, TraceWriter* traces) {
  use(layout);
  planned_.tail.reset();
  planned_.tail_batches = 0;
  std::vector<ClipOutline> clips;
  for (std::size_t i = 0; i < std::min(layout.replicas(), batches_.size()); ++i) {
    clips.insert(clips.end(), batches_[i].begin(), batches_[i].end());
  }
  StepTrial trial;
  MadeClips made =
      make_clips_together(job_, planned_, world_, clips, device_, nullptr, traces, &trial);
  layout.measured = world_.max(trial.seconds());
  return made;
}

// Where the clips of the batches are now, in the batches and in `clips`.
void Tuning::take_steps_together(const MadeClips& made, std::vector<ClipOutline>& clips) {
  constexpr std::int32_t not_to_be_made = -1;  // complete, or failed
  std::vector<ClipOutline> timed;
  for (const BatchOutline& batch : batches_) timed.insert(timed.end(), batch.begin(), batch.end());
  std::map<int, std::int32_t> steps;
  for (const ClipOutline& clip : timed) steps[clip.index] = not_to_be_made;
  for (const ClipOutline& clip : read_pending_together(job_, planned_, world_, timed)) {
    steps[clip.index] = clip.saved_step;
  }
  for (const ClipFailure& failure : made.failures) steps[failure.clip] = not_to_be_made;
  const auto update = [&](std::vector<ClipOutline>& some) {
    std::erase_if(some, [&](ClipOutline& clip) {
      const auto found = steps.find(clip.index);
      if (found == steps.end()) return false;
      clip.saved_step = found->second;
      return clip.saved_step == not_to_be_made;
    });
  };
  for (BatchOutline& batch : batches_) update(batch);
  std::erase_if(batches_, [](const BatchOutline& batch) { return batch.empty(); });
  update(clips);
}

// The first rank chooses for all.
void Tuning::choose_together(const std::vector<ClipOutline>& clips) {
  const std::vector<BatchOutline> batches = form_batches(clips, planned_.kinds, job_.batch);
  std::size_t best = 0;
  comm::run_on_first_rank(world_, [&] {
    for (std::size_t i = 0; i < layouts_.size() && !batches.empty(); ++i) {
      Layout& layout = layouts_[i];
      if (layout.measured <= 0) continue;
      use(layout);
      planned_.predicted_by.measured_step = layout.measured / std::max(layout.predicted, 1e-12);
      layout.rest = predict(planned_, batches)->make;
      planned_.predicted_by.measured_step = 1;
      const Layout& first = layouts_[best];
      if (first.rest <= 0 || layout.rest < first.rest) best = i;
    }
  });
  kept_ = comm::broadcast_value(world_, best, 0);
  use(layouts_[kept_]);
}

nlohmann::json Tuning::describe() const {
  nlohmann::json layouts = nlohmann::json::array();
  for (const Layout& layout : layouts_) {
    nlohmann::json row{{"layout", layout.shown.layout},
                       {"options", layout.shown.options},
                       {"weights", layout.shown.weights},
                       {"predicted_step_seconds", layout.predicted}};
    if (layout.measured > 0) {
      row["measured_step_seconds"] = layout.measured;
      row["rest_seconds"] = layout.rest;
    }
    layouts.push_back(std::move(row));
  }
  return {{"layouts", layouts}, {"kept", kept_}, {"seconds", seconds_}};
}

}  // namespace reelmesh::pipeline
