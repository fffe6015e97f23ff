#pragma once
// What the commands that plan a job do alike.
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "forecast/batch_system.hpp"
#include "forecast/comparison.hpp"
#include "forecast/plan_job.hpp"
#include "plan_options.hpp"

namespace reelmesh::app {

constexpr bool ascii_only = true;  // of JSON: names may have characters that change a terminal

/// The allocation of Slurm, or the ranks of mpirun, in which the program runs.
Allocation allocation_of_program();
/// Chooses the products of the job, and checks its model.
void prepare_plan(const Job& job);
/// Does the work of a command that plans a job, whose model it prepares; warns if there are no
/// weights. Under mpirun only on one rank, which prints.
Status plan_with(const PlannedOptions& options, const std::function<Status()>& work);
Conditions conditions_of(const PlannedOptions& options, int ranks);
/// The plan of a job that makes clips. Error(unavailable) if it does not fit.
JobPlan fitting_job(const Job& job, const Conditions& conditions);

/// Prints a table of plans.
void print_plans(const std::vector<ComparedPlan>& plans, bool with_ranks, const std::string& remark,
                 bool as_json);

/// Plans as text and as JSON.
class PlanPage {
 public:
  /// The first one has the sbatch line; warns if it is predicted to take longer than the
  /// allocation.
  void add(const PlannedOptions& options, const JobPlan& planned, const std::string& clips,
           const std::vector<BatchOutline>& batches);
  /// The plan of a job that makes clips: `job`. when: said before its clips.
  void add_clips(const PlannedOptions& options, const JobPlan& planned, const std::string& when,
                 const Job& job);
  Status print(bool as_json) const;

  nlohmann::json described;
  std::string text;
};

void write_machine(const std::filesystem::path& file, const MachineTimes& machine);

}  // namespace reelmesh::app
