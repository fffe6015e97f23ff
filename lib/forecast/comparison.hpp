#pragma once
// Plans of one job beside one another, by their predicted times.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "forecast/plan_job.hpp"
#include "forecast/prediction.hpp"

namespace reelmesh {

/// The ranks of a plan, without its cuts: as ComparedPlan::layout.
std::string layout_text(const Plan& plan);

/// A plan of a job in short.
struct ComparedPlan {
  int ranks = 1;
  ParallelRequest request;  ///< of compare_plans()
  std::string layout;   ///< "2 replicas of cfg 2 x ulysses 3", "split, 1 text, 1 decode; ring 6"
  std::string cut;      ///< of the tokens of a group: "rows 8"
  std::string options;  ///< with which `run` chooses it: "--parallel.replicas 2 ..."
  std::string weights;  ///< of the transformer: "replicated", "sharded", "host"
  std::int64_t memory = 0;  ///< bytes of the rank with most
  double efficiency = 0;    ///< of N ranks: rank-seconds of the smallest job / those of this one
  bool equal = false;       ///< whether it is as fast as the fastest within stated_error()
  Prediction prediction;
};

/// The plan of a job, whose times are known, in short.
/// request: with which it was made.
ComparedPlan in_short(const JobPlan& planned, const std::vector<BatchOutline>& batches,
                      const ParallelRequest& request = {});

/// The layout that the job gets, which needs no option, and then those that its options leave open
/// and that fit, the fastest first (Choice::all). Layouts whose times the machine file does not
/// give, as it lacks a link, are left out. clips: those that are to be made. Leaves one of them in
/// `planned`. Errors as require_machine() and predict(); Error(unavailable) if none fits.
std::vector<ComparedPlan> compare_plans(JobPlan& planned, const Job& job,
                                        const Conditions& conditions,
                                        std::span<const ClipOutline> clips);

/// A table of plans for people, in the given order. with_ranks: plans of several numbers of ranks,
/// with their efficiency.
std::string comparison_text(const std::vector<ComparedPlan>& plans, bool with_ranks);
/// The same for programs: a list.
nlohmann::json describe(const std::vector<ComparedPlan>& plans);

}  // namespace reelmesh
