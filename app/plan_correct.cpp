// reelmesh plan correct: a job that is done beside its prediction, and a machine corrected by it.
#include <boost/program_options/value_semantic.hpp>
#include <iostream>

#include "base/log.hpp"
#include "base/text.hpp"
#include "commands.hpp"
#include "draft.hpp"
#include "forecast/correction.hpp"
#include "forecast/describe.hpp"
#include "job/machine_file.hpp"
#include "ops/onednn.hpp"
#include "planning.hpp"

namespace reelmesh::app {

CorrectOptions parse_correct(int argc, const char* const* argv) {
  namespace po = boost::program_options;
  po::options_description known;
  known.add_options()("json", po::bool_switch());
  for (const char* name : {"to", "device.machine", "model.path"}) {
    known.add_options()(name, po::value<std::string>());
  }
  const CommandLine line = read_command_line(argc, argv, known);
  CorrectOptions options;
  options.folder = only_operand(line, "OUT, the folder of a job that is done");
  std::vector<Given> of_job{{"from", (options.folder / "job.h5").string(), "OUT"}};
  for (const Given& given : line.options) {
    if (given.name == "json") {
      options.json = true;
    } else if (given.name == "to") {
      options.to = parse_path(given.value, given.where);
    } else {
      of_job.push_back(given);
    }
  }
  Draft draft = read_draft(JobKind::clips, of_job, {});
  add_clips(draft);
  options.job = std::move(draft.job);
  return options;
}

HelpPage correct_help() {
  return {
      .purpose =
          "Compares the predicted times of the job in the folder OUT, which is done, with those\n"
          "of its trace, stage by stage. With --to, writes a machine file whose times are\n"
          "those of device.machine in the ratio of measured to predicted ones.",
      .usage = "reelmesh plan correct OUT [--to FILE] [OPTIONS]",
      .notes = {},
      .sections = {{"Options",
                    {{"--to FILE", "the corrected machine file [default: none is written]"},
                     {"--device.machine FILE",
                      "with whose times it is predicted [default: "
                      "that of the job]"},
                     {"--model.path DIR", "where the model is now [default: as in the job]"},
                     {"--json", "print JSON"},
                     {"--help", "print this text"}}}},
      .examples = "reelmesh plan correct out --device.machine node.cfg --to better.cfg",
      .operands = {{"OUT", "", {}}}};
}

namespace {

// A job that was run, as predicted and as measured.
Status print_comparison_with_run(const CorrectOptions& options) {
  Job job = options.job;
  require_machine(job);
  const EarlierRun run = read_run(options.folder, job.parallel);
  job.parallel = run.parallel;
  const Conditions conditions =
      plan_conditions(job, static_cast<int>(run.node_of.size()), job.threads.value_or(run.threads),
                      run.node_of, ops::compute_dtype(job.dtype), job.machine->on_gpu);
  const JobPlan planned = plan_job(job, conditions, probe_inputs(job));
  const Correction correction =
      corrected(planned, form_batches(planned.clips, planned.kinds, job.batch), run);
  if (!options.to.empty()) write_machine(options.to, correction.machine);
  if (options.json) {
    std::cout << describe(correction).dump(2, ' ', ascii_only) << '\n';
  } else {
    std::cout << printable_lines(correction_text(correction));
  }
  return Status::ok;
}

}  // namespace

Status correct_command(int argc, const char* const* argv) {
  const CorrectOptions options = parse_correct(argc, argv);
  if (log::launch_rank() != first_rank) return Status::ok;  // under mpirun, only one rank prints
  prepare_plan(options.job);
  return print_comparison_with_run(options);
}

}  // namespace reelmesh::app
