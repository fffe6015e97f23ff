// reelmesh plan calibrate: a machine file, measured on the ranks of mpirun.
#include <boost/program_options/value_semantic.hpp>

#include "comm/together.hpp"
#include "commands.hpp"
#include "draft.hpp"
#include "forecast/calibration.hpp"
#include "job_command.hpp"
#include "pipeline/start.hpp"
#include "planning.hpp"

namespace reelmesh::app {

namespace {

constexpr std::array device_keys{"device.threads", "device.backend", "device.transport"};

}  // namespace

CalibrateOptions parse_calibrate(int argc, const char* const* argv) {
  boost::program_options::options_description known;
  for (const char* key : device_keys) {
    known.add_options()(key, boost::program_options::value<std::string>());
  }
  const CommandLine line = read_command_line(argc, argv, known);
  return {.job = draft_of_keys(JobKind::clips, line.options).job,
          .file = only_operand(line, "FILE, the machine file to write")};
}

HelpPage calibrate_help() {
  std::vector<HelpLine> lines;
  for (const char* key : device_keys) lines.push_back(help_of(key));
  lines.push_back({"--help", "print this text"});
  return {.purpose =
              "Measures this machine on all ranks of mpirun, in about a minute, and writes a\n"
              "machine file for device.machine, with which times are predicted. Start as many\n"
              "ranks on a node, with as many threads, as jobs will have, while nothing else runs.",
          .usage = "mpirun -n N reelmesh plan calibrate FILE [OPTIONS]",
          .notes = {},
          .sections = {{"Options", lines}},
          .examples =
              "mpirun -n 8 reelmesh plan calibrate node.cfg\n"
              "reelmesh plan --config job.cfg --ranks 32 --device.machine node.cfg",
          .operands = {{"FILE", "", {}}}};
}

Status calibrate_command(int argc, const char* const* argv) {
  const CalibrateOptions options = parse_calibrate(argc, argv);
  const auto work = [&](const comm::Group& ranks, const Job& job, const ProgramInfo& program,
                        comm::Watchdog*) {
    const pipeline::Devices found = pipeline::find_devices_together(ranks, job);
    const std::filesystem::path& file = options.file;
    MachineTimes machine = measure_machine(found.launched, found.device, found.threads,
                                           file.has_parent_path() ? file.parent_path() : ".");
    machine.source += fmt::format(", reelmesh {}", program.version);
    comm::run_on_first_rank(ranks, [&] { write_machine(file, machine); });
    return Status::ok;
  };
  return parse_and_do(
      [&](const OptionsKnown& known) {
        known(options.job);
        return options.job;
      },
      work);
}

}  // namespace reelmesh::app
