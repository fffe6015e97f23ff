// reelmesh plan compare: the layouts of a job beside one another.
#include "commands.hpp"
#include "job/machine_file.hpp"
#include "planning.hpp"

namespace reelmesh::app {

PlannedOptions parse_compare(int argc, const char* const* argv, const Allocation& allocation) {
  PlannedOptions options = parse_planned(argc, argv, allocation, {}).options;
  require_one_count(options, "plan compare");
  require(!options.job.train, Status::usage,
          "plan compare: is given for a training, expected a job that makes clips");
  return options;
}

HelpPage compare_help() {
  return {.purpose =
              "Prints a table of the layouts that the options leave open and that fit N ranks,\n"
              "the fastest job first, by the times of device.machine.",
          .usage =
              "reelmesh plan compare --ranks N --device.machine FILE [--config FILE]\n"
              "    [--section.key value ...]",
          .notes = options_of_job,
          .sections = {{"Options", planned_help()}},
          .examples = "reelmesh plan compare --config job.cfg --ranks 8 --device.machine node.cfg",
          .operands = {},
          .has_job_options = true};
}

namespace {

std::string choice_text(const std::vector<ComparedPlan>& plans, const Job& job, int ranks) {
  const auto equal = std::count_if(plans.begin() + 1, plans.end(),
                                   [](const ComparedPlan& plan) { return plan.equal; });
  return fmt::format(
      "{} of {} layouts that fit {} ranks are as fast within {:.0f} %, the error of the times (=)\n"
      "recommended: auto, which needs no option\n",
      equal, plans.size() - 1, ranks, 100 * stated_error(*job.machine));
}

Status print_layouts(const PlannedOptions& options) {
  const Job& job = options.job;
  const int ranks = options.ranks.front();
  const Conditions conditions = conditions_of(options, ranks);
  JobPlan planned = plan_job(job, conditions, probe_inputs(job));
  const std::vector<ComparedPlan> plans =
      compare_plans(planned, job, conditions, clips_to_plan(job, planned));
  print_plans(plans, false, choice_text(plans, job, ranks), options.json);
  return Status::ok;
}

}  // namespace

Status compare_command(int argc, const char* const* argv) {
  const PlannedOptions options = parse_compare(argc, argv, allocation_of_program());
  return plan_with(options, [&] {
    require_machine(options.job);
    return print_layouts(options);
  });
}

}  // namespace reelmesh::app
