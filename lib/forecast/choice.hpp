#pragma once
// The layouts of a job: those that its options leave open, and the one that takes the shortest.
#include "forecast/simulation.hpp"

namespace reelmesh {

/// A way in which a job can be laid out.
struct Candidate {
  ParallelRequest request;  ///< that gives it
  JobLayout layout;
  double seconds = 0;  ///< of the job, as simulate()
  double load = 0;     ///< of these the loading of weights
};

/// Makes the layouts of a job that its options leave open, and compares them by the clock.
class Choice {
 public:
  /// batches: those that are to be made, in any order. planned: all but its layout counts. The
  /// references must outlive the object.
  Choice(const Job& job, const JobPlan& planned, const Workload& workload, Conditions conditions,
         const std::vector<BatchOutline>& batches);

  /// The layout with which the job is predicted to end first. With a machine, of all that
  /// ParallelRequest can ask for: any number of replicas, also more than there are batches, and
  /// groups that leave ranks without work; stages in turn or side by side; weights on the ranks,
  /// sharded or on the host; and larger groups for the last batches. Within a group, cut and mesh
  /// are those with the shortest step (choose_layout). Left out are what cannot be faster by a
  /// lower bound; of more than 16 ranks, groups of similar sizes; of more than 64 ranks, stages
  /// side by side, and groups larger than two that were slower; of more than few_sizes sizes of
  /// clips, stages side by side and ranks without work. Weights leave the ranks only if that saves
  /// half a percent.
  ///
  /// Without a machine, FLOPs and bytes of steps count; stages take turns unless asked otherwise,
  /// and replicas are of equal size. If no layout fits, the one that is asked for.
  Candidate best();

  /// best() first; then all layouts that it was compared with, itself included, and of the fastest
  /// three all meshes, cuts and places of weights, the fastest first. Empty if none fits.
  std::vector<Candidate> all();

 private:
  bool has_many_sizes() const { return workload_.sizes.size() > few_sizes; }
  bool timed() const { return conditions_.machine.times != nullptr; }
  void search();
  void add_phased();
  void add_split();
  void add_split(int text, int decode);
  void add_weights();
  void add_tails();
  void add(const ParallelRequest& request);
  void add_with_weights_elsewhere(ParallelRequest request);
  std::vector<ParallelRequest> other_meshes(const Candidate& of) const;
  double min_seconds_of_steps(int ranks) const;
  bool is_faster(const Candidate& one, const Candidate& other) const;
  std::size_t fastest() const;

  const Job& job_;
  const JobPlan& planned_;
  const Workload& workload_;
  const Conditions conditions_;
  const std::vector<BatchOutline>& batches_;
  std::vector<Candidate> found_;  ///< that fit
};

/// Whether the ranks of each node fit its memory together, where it is known, and their limits.
bool fits(const Plan& plan, const Conditions& conditions);

/// The plan of a request. Errors as make_plan.
Plan plan_clips(const ParallelRequest& request, const Workload& workload,
                const Conditions& conditions);

/// The same; none if these ranks cannot form the requested groups, or it does not fit.
std::optional<Plan> fitting_plan(const ParallelRequest& request, const Workload& workload,
                                 const Conditions& conditions);

}  // namespace reelmesh
