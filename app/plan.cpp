#include <iostream>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "base/new_file.hpp"
#include "comm/together.hpp"
#include "commands.hpp"
#include "job/calibration.hpp"
#include "job/describe.hpp"
#include "job/machine.hpp"
#include "job/machine_file.hpp"
#include "job_command.hpp"
#include "ops/onednn.hpp"
#include "options.hpp"
#include "pipeline/start.hpp"
#include "train/sampling.hpp"

namespace reelmesh::app {

namespace {

Status calibrate(const PlanOptions& options) {
  const auto work = [&](const comm::Group& ranks, const Job& job, const ProgramInfo& program,
                        comm::Watchdog*) {
    const pipeline::Devices found = pipeline::find_devices_together(ranks, job);
    const std::filesystem::path& file = options.calibrate;
    MachineTimes machine = measure_machine(found.launched, found.device, found.threads,
                                           file.has_parent_path() ? file.parent_path() : ".");
    machine.source += fmt::format(", reelmesh {}", program.version);
    comm::run_on_first_rank(ranks, [&] {
      NewFile written(file);
      written.write(to_text(machine));
      written.commit();
    });
    return Status::ok;
  };
  return parse_and_do(
      [&](const OptionsKnown& known) {
        known(options.job);
        return options.job;
      },
      work);
}

}  // namespace

Status plan_command(int argc, const char* const* argv) {
  const PlanOptions options = parse_plan(argc, argv);
  if (!options.calibrate.empty()) return calibrate(options);
  if (log::launch_rank() != first_rank) return Status::ok;  // under mpirun, only one rank prints
  const Job& job = options.job;
  std::vector<int> node_of;
  for (int rank = 0; rank < options.ranks; ++rank) {
    node_of.push_back(rank / options.ranks_per_node);
  }
  choose_products(job);
  const Conditions conditions =
      plan_conditions(job, options.ranks, job.threads.value_or(1), std::move(node_of),
                      ops::compute_dtype(job.dtype), job.backend == Backend::cuda);
  Family::open(job.model)->check_weights(job.train || has_videos(job));
  nlohmann::json described;
  std::string text;
  const auto add = [&](const JobPlan& planned, const std::string& clips,
                       const std::vector<BatchOutline>& batches) {
    nlohmann::json own = describe(planned, batches);
    text += fmt::format("{}\n{}", clips, plan_text(own, Detail::ranks));
    (described.is_null() ? described : described["samples"]) = std::move(own);
  };
  const auto print = [&] {
    std::cout << (options.json ? described.dump(2) + "\n" : text) << std::flush;
    return Status::ok;
  };
  const auto add_clips = [&](const JobPlan& planned, const std::string& when, int batch) {
    add(planned, when + describe_clips(planned.clips, planned.kinds),
        form_batches(planned.clips, planned.kinds, batch));
  };
  if (job.train) {
    const train::Samples samples = train::plan_samples(job, conditions, train::checked_buckets(job),
                                                       train::listed_samples(job.train->data),
                                                       train::listed_validation(job.train->data));
    require_fit(samples.clips, samples.planned, conditions);
    add(samples.planned, describe_training(samples.planned, samples.learned), {});
    if (job.train->sample_every > 0) {
      const Job clips = train::sampling_job(job, samples, 0, {});
      JobPlan planned;
      train::of_sampling([&] {
        planned = train::plan_sampling(clips, conditions, probe_inputs(clips), *job.train);
        require_fit(clips, planned, conditions);
      });
      add_clips(planned, fmt::format("\nclips are made {}", train::when_sampled(*job.train)),
                clips.batch);
    }
    return print();
  }
  const JobPlan planned = plan_job(job, conditions, probe_inputs(job));
  require_fit(job, planned, conditions);
  add_clips(planned, "", job.batch);
  return print();
}

}  // namespace reelmesh::app
