#pragma once
// The layout of a job, chosen by the first steps of its own clips.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "forecast/comparison.hpp"
#include "pipeline/make_clips.hpp"
#include "pipeline/start.hpp"

namespace reelmesh::pipeline {

/// Layouts of a job that are timed, each on some steps of its first clips. Every layout gives the
/// same bits, so these steps count: the clips go on from there.
class Tuning {
 public:
  /// Chooses what is timed: the layout of `planned`, and others of compare_plans() that are
  /// predicted to be fastest, each with its fastest place of weights, at most three; on batches of
  /// one size. If fewer than two can be timed, says why. clips: those that are to be made, not
  /// empty. world: the ranks in the order of the plan, in which they stay. planned is as before;
  /// it, job and world must outlive the object. Collective over the world.
  Tuning(const Job& job, JobPlan& planned, const Conditions& conditions, const Devices& found,
         const comm::Group& world, std::span<const ClipOutline> clips);

  /// Whether there are layouts to choose from.
  bool has_choice() const { return layouts_.size() > 1; }
  /// Makes steps with each layout, and leaves in `planned` the one that is predicted to make the
  /// rest soonest if its steps take as long as measured. → what was made; incomplete if the job is
  /// to stop: then planned is as before. clips: those that are to be made; afterwards those that
  /// are still to be made, with their saved steps. traces: as of make_clips_together. Collective.
  MadeClips time_together(std::vector<ClipOutline>& clips, TraceWriter* traces);

  /// Whether another layout than that of the job is kept.
  bool kept_other() const { return kept_ != 0; }
  /// What was measured, as the attribute `tuned` of job.h5.
  nlohmann::json describe() const;

 private:
  struct Layout {
    ComparedPlan shown;
    JobLayout layout;
    double predicted = 0;  ///< seconds of a step
    double measured = 0;   ///< on the slowest rank; 0: not measured
    double rest = 0;       ///< seconds of making what is left, by the measured step; on rank 0
    std::size_t replicas() const { return layout.plan.roles.denoise.size(); }
  };

  void choose_batches(std::span<const ClipOutline> clips);
  void choose_layouts_together(const Conditions& conditions, const Devices& found,
                               std::span<const ClipOutline> clips, std::size_t max);
  void add_planned(ComparedPlan shown);
  void use(const Layout& layout);
  MadeClips make_steps_together(Layout& layout, TraceWriter* traces);
  void take_steps_together(const MadeClips& made, std::vector<ClipOutline>& clips);
  void choose_together(const std::vector<ClipOutline>& clips);

  const Job& job_;
  JobPlan& planned_;
  const comm::Group& world_;
  Device device_;
  std::vector<BatchOutline> batches_;  ///< as many as ranks at most, with the steps that are saved
  std::size_t size_ = 0;               ///< of these clips: an index of Plan::sizes
  int steps_left_ = 0;                 ///< of each of these clips at the start
  std::vector<Layout> layouts_;        ///< that of the job first
  std::size_t kept_ = 0;
  double seconds_ = 0;  ///< that the timing took
};

}  // namespace reelmesh::pipeline
