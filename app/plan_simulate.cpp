// reelmesh plan simulate: a job played event by event with predicted times.
#include "base/units.hpp"
#include "commands.hpp"
#include "forecast/describe.hpp"
#include "forecast/simulated_job.hpp"
#include "job/machine_file.hpp"
#include "planning.hpp"
#include "program.hpp"

namespace reelmesh::app {

SimulateOptions parse_simulate(int argc, const char* const* argv, const Allocation& allocation) {
  constexpr std::array own{"mtbf", "requeue"};
  const PlannedWords words =
      parse_planned(argc, argv, allocation, own, "OUT, a new folder for the simulated job");
  SimulateOptions options{words.options, words.operand, {}};
  require_one_count(options, "plan simulate");
  require(!options.job.train, Status::usage,
          "plan simulate: is given for a training, expected a job that makes clips");
  for (const auto& [name, value] :
       {std::pair{"mtbf", &options.failures.every}, {"requeue", &options.failures.pause}}) {
    const auto given = words.own.find(name);
    if (given != words.own.end()) *value = parse_wait(given->second.value, given->second.where);
  }
  return options;
}

HelpPage simulate_help() {
  std::vector<HelpLine> lines{
      {"--mtbf TIME", "mean time between failures of a rank, such as 5000h [default: none fails]"},
      {"--requeue TIME", "from a failure to the next start [default: 1min]"}};
  const std::vector<HelpLine> all = planned_help();
  lines.insert(lines.begin(), all.begin(), all.end() - 1);
  lines.push_back(all.back());
  return {.purpose =
              "Plans a job, plays it with the times of device.machine, and writes OUT/job.h5 and\n"
              "OUT/trace.h5, without clips, for reelmesh-report and reelmesh-trace. OUT is new or\n"
              "empty.",
          .usage =
              "reelmesh plan simulate OUT --ranks N --device.machine FILE [--config FILE]\n"
              "    [--section.key value ...]",
          .notes = options_of_job,
          .sections = {{"Options", lines}},
          .examples =
              "reelmesh plan simulate out --config job.cfg --ranks 64 --ranks-per-node 8 \\\n"
              "    --device.machine node.cfg --mtbf 1000h",
          .operands = {{"OUT", "", {}}},
          .has_job_options = true};
}

namespace {

// A sentence about the simulated job.
std::string simulation_text(const Simulation& simulation, double undisturbed,
                            const std::filesystem::path& folder) {
  std::string failures;
  if (const std::size_t count = simulation.failures.size()) {
    failures = fmt::format(", with {} failure{} that cost {}", count, count > 1 ? "s" : "",
                           format_seconds(simulation.seconds - undisturbed));
  }
  return fmt::format("\nsimulated: the job takes {}{}; {} and trace.h5 are for reelmesh-report\n",
                     format_seconds(simulation.seconds), failures, (folder / "job.h5").string());
}

// The job as it is written, in which a preset's folder would name nothing.
Job recorded(const PlannedOptions& options) {
  Job job = options.job;
  if (!options.preset) return job;
  job.model.root = PresetFolder::instead;
  for (auto* list : {&job.options, &job.source.given}) {
    for (auto& [name, value] : *list) {
      if (name == "model.path") value = PresetFolder::instead;
    }
  }
  return job;
}

}  // namespace

Status simulate_command(int argc, const char* const* argv) {
  const SimulateOptions options = parse_simulate(argc, argv, allocation_of_program());
  return plan_with(options, [&] {
    const Job& job = options.job;
    require_machine(job);
    require_new(options.folder);
    const JobPlan planned = fitting_job(job, conditions_of(options, options.ranks.front()));
    PlanPage page;
    page.add_clips(options, planned, "", job);
    constexpr std::int64_t max_spans = 1'000'000;
    const auto batches = form_batches(clips_to_plan(job, planned), planned.kinds, job.batch);
    const Simulation simulation = simulate(planned, planned, batches, options.failures, max_spans);
    const double undisturbed = simulate(planned, planned, batches).seconds;
    write_simulation(options.folder, simulation, recorded(options), planned, program_info(),
                     page.described);
    page.described["simulated"] = describe(simulation, undisturbed);
    page.text += simulation_text(simulation, undisturbed, options.folder);
    return page.print(options.json);
  });
}

}  // namespace reelmesh::app
