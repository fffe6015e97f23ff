#include <cstdlib>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "base/new_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "comm/together.hpp"
#include "commands.hpp"
#include "forecast/batch_system.hpp"
#include "forecast/calibration.hpp"
#include "forecast/comparison.hpp"
#include "forecast/correction.hpp"
#include "forecast/describe.hpp"
#include "forecast/simulated_job.hpp"
#include "job/machine.hpp"
#include "job/machine_file.hpp"
#include "job_command.hpp"
#include "ops/onednn.hpp"
#include "options.hpp"
#include "pipeline/start.hpp"
#include "program.hpp"
#include "train/sampling.hpp"

namespace reelmesh::app {

namespace {

constexpr bool ascii_only = true;  // of JSON: names may have characters that change a terminal

Conditions conditions_of(const PlanOptions& options, int ranks) {
  const Job& job = options.job;
  const int of_node = options.ranks_per_node.value_or(ranks);
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank / of_node);
  Conditions conditions =
      plan_conditions(job, ranks, job.threads.value_or(1), std::move(node_of),
                      ops::compute_dtype(job.dtype), job.backend == Backend::cuda);
  if (!conditions.on_gpu) conditions.node_bytes = options.node_bytes;
  if (job.machine != nullptr) conditions.on_disk = bytes_on_disk(*Family::open(job.model));
  return conditions;
}

train::Samples fitting_training(const Job& job, const Conditions& conditions) {
  train::Samples samples = train::plan_samples(job, conditions, train::checked_buckets(job),
                                               train::listed_samples(job.train->data),
                                               train::listed_validation(job.train->data));
  require_fit(samples.clips, samples.planned, conditions);
  return samples;
}

JobPlan fitting_job(const Job& job, const Conditions& conditions) {
  JobPlan planned = plan_job(job, conditions, probe_inputs(job));
  require_fit(job, planned, conditions);
  return planned;
}

// The plan of the job, or of the training, on so many ranks.
ComparedPlan planned_in_short(const PlanOptions& options, int ranks) {
  const Job& job = options.job;
  const Conditions conditions = conditions_of(options, ranks);
  if (job.train) return in_short(fitting_training(job, conditions).planned, {});
  const JobPlan planned = fitting_job(job, conditions);
  return in_short(planned, form_batches(planned.clips, planned.kinds, job.batch));
}

void print_plans(const std::vector<ComparedPlan>& plans, bool with_ranks, const std::string& remark,
                 bool as_json) {
  if (as_json) {
    std::cout << nlohmann::json{{"compared", described(plans)}}.dump(2, ' ', ascii_only) << '\n';
  } else {
    std::cout << printable_lines(table_of(plans, with_ranks) + remark);
  }
}

std::string described_choice(const std::vector<ComparedPlan>& plans, const Job& job, int ranks) {
  const auto equal = std::count_if(plans.begin() + 1, plans.end(),
                                   [](const ComparedPlan& plan) { return plan.equal; });
  return fmt::format(
      "{} of {} layouts that fit {} ranks are as fast within {:.0f} %, the error of the times (=)\n"
      "recommended: auto, which needs no option\n",
      equal, plans.size() - 1, ranks, 100 * stated_error(*job.machine));
}

Status print_layouts(const PlanOptions& options) {
  const Job& job = options.job;
  require(!job.train, Status::usage,
          "--compare: is given for a training, expected a job that makes clips");
  const int ranks = options.ranks.front();
  const Conditions conditions = conditions_of(options, ranks);
  JobPlan planned = plan_job(job, conditions, probe_inputs(job));
  const std::vector<ComparedPlan> plans = compare_plans(planned, job, conditions, planned.clips);
  print_plans(plans, false, described_choice(plans, job, ranks), options.json);
  return Status::ok;
}

Status print_rank_counts(const PlanOptions& options) {
  constexpr double efficient = 0.8;
  std::vector<ComparedPlan> plans;
  std::string refused, remark;
  for (const int ranks : options.ranks) {
    try {
      plans.push_back(planned_in_short(options, ranks));
    } catch (const Error& error) {
      if (error.status() != Status::unavailable) throw;
      refused += fmt::format("{} ranks: {}\n", ranks, error.what());
      continue;
    }
    const ComparedPlan& first = plans.front();
    ComparedPlan& last = plans.back();
    last.efficiency = first.prediction.job * first.ranks / (last.prediction.job * last.ranks);
    if (remark.empty() && last.efficiency < efficient) {
      remark = fmt::format("efficiency is below {:.0f} % from {} ranks on\n", 100 * efficient,
                           last.ranks);
    }
  }
  require(!plans.empty(), Status::unavailable, "no number of ranks fits: {}", refused);
  print_plans(plans, true, remark + refused, options.json);
  return Status::ok;
}

// The fewest ranks with which the job is done by the deadline; beyond 32, to within a sixteenth.
int fewest_ranks(const PlanOptions& options) {
  constexpr int most_by_default = 1024;
  const int most = options.ranks.empty() ? most_by_default : options.ranks.front();
  const double deadline = *options.deadline;
  std::optional<ComparedPlan> best;
  std::string refused;
  // Whether so many ranks fit the job and meet the deadline.
  const auto meets = [&](int ranks) {
    try {
      ComparedPlan found = planned_in_short(options, ranks);
      const bool met = found.prediction.job <= deadline;
      if (!best || found.prediction.job < best->prediction.job) best = std::move(found);
      return met;
    } catch (const Error& error) {
      if (error.status() != Status::unavailable) throw;
      refused = error.what();
      return false;
    }
  };
  // Powers of two first, then the numbers between the last two of them.
  int missed = 0;
  for (int ranks = 1;; ranks = std::min(2 * ranks, most)) {
    if (meets(ranks)) {
      for (int between = missed + 1; between < ranks; ++between) {
        if (ranks - missed > 16 && (between - missed) % ((ranks - missed) / 16) != 0) continue;
        if (meets(between)) return between;
      }
      return ranks;
    }
    missed = ranks;
    if (ranks == most) break;
  }
  require(best.has_value(), Status::unavailable, "--deadline: no number of ranks up to {} fits: {}",
          most, refused);
  fail(Status::unavailable,
       "--deadline: no number of ranks up to {} is predicted to take at most {}; the best is {} "
       "with {} ranks ({})",
       most, format_seconds(deadline), format_seconds(best->prediction.job), best->ranks,
       best->layout);
}

void warn_of_time_limit(const Allocation& allocation, const Prediction& prediction) {
  if (!allocation.seconds_left || prediction.high <= *allocation.seconds_left) return;
  log::warning("the job is predicted to take {} to {}, but {} ends in {}",
               format_seconds(prediction.low), format_seconds(prediction.high), allocation.source,
               format_seconds(std::max(0.0, *allocation.seconds_left)));
}

void write_machine(const std::filesystem::path& file, const MachineTimes& machine) {
  NewFile written(file);
  written.write(to_text(machine));
  written.commit();
}

// A job that was run, as predicted and as measured.
Status print_comparison_with_run(const PlanOptions& options) {
  Job job = options.job;
  require_machine(job);
  const EarlierRun run = read_run(options.trace, job.parallel);
  job.parallel = run.parallel;
  const Conditions conditions =
      plan_conditions(job, static_cast<int>(run.node_of.size()), job.threads.value_or(run.threads),
                      run.node_of, ops::compute_dtype(job.dtype), job.machine->on_gpu);
  const JobPlan planned = plan_job(job, conditions, probe_inputs(job));
  const Correction correction =
      corrected(planned, form_batches(planned.clips, planned.kinds, job.batch), run);
  if (!options.calibrate.empty()) write_machine(options.calibrate, correction.machine);
  if (options.json) {
    std::cout << describe(correction).dump(2, ' ', ascii_only) << '\n';
  } else {
    std::cout << printable_lines(table_of(correction));
  }
  return Status::ok;
}

// A sentence about the simulated job.
std::string describe_simulation(const Simulation& simulation, double undisturbed,
                                const std::filesystem::path& folder) {
  std::string failures;
  if (const std::size_t count = simulation.failures.size()) {
    failures = fmt::format(", with {} failure{} that cost {}", count, count > 1 ? "s" : "",
                           format_seconds(simulation.seconds - undisturbed));
  }
  return fmt::format("\nsimulated: the job takes {}{}; {} and trace.h5 are for reelmesh-report\n",
                     format_seconds(simulation.seconds), failures, (folder / "job.h5").string());
}

Status calibrate(const PlanOptions& options) {
  const auto work = [&](const comm::Group& ranks, const Job& job, const ProgramInfo& program,
                        comm::Watchdog*) {
    const pipeline::Devices found = pipeline::find_devices_together(ranks, job);
    const std::filesystem::path& file = options.calibrate;
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

}  // namespace

Status plan_command(int argc, const char* const* argv) {
  const Allocation allocation =
      find_allocation([](const char* name) -> const char* { return std::getenv(name); },
                      static_cast<double>(std::time(nullptr)));
  PlanOptions options = parse_plan(argc, argv, allocation);
  if (!options.calibrate.empty() && options.trace.empty()) return calibrate(options);
  if (log::launch_rank() != first_rank) return Status::ok;  // under mpirun, only one rank prints
  const Job& job = options.job;
  choose_products(job);
  check_model(job);
  if (options.ranks.size() > 1 || options.compare || options.deadline) require_machine(job);
  if (!options.trace.empty()) return print_comparison_with_run(options);
  if (!options.simulate.empty()) {
    require(!job.train, Status::usage,
            "--simulate: is given for a training, expected a job that makes clips");
    require_machine(job);
    require_new(options.simulate);
  }
  if (options.compare) return print_layouts(options);
  if (options.ranks.size() > 1) return print_rank_counts(options);
  const Conditions conditions =
      conditions_of(options, options.deadline ? fewest_ranks(options) : options.ranks.front());
  nlohmann::json described;
  std::string text;
  const auto add = [&](const JobPlan& planned, const std::string& clips,
                       const std::vector<BatchOutline>& batches) {
    const auto prediction = predict(planned, batches);
    nlohmann::json own = describe(planned, batches, prediction);
    text += fmt::format("{}\n{}", clips, plan_text(own, Detail::ranks));
    if (described.is_null()) {
      own["sbatch"] = sbatch_line(planned, prediction);
      text += fmt::format("\nwith Slurm: {}\n", own["sbatch"].get<std::string>());
      if (prediction) warn_of_time_limit(allocation, *prediction);
      described = std::move(own);
    } else {
      described["samples"] = std::move(own);
    }
  };
  const auto print = [&] {
    std::cout << (options.json ? described.dump(2, ' ', ascii_only) + "\n" : printable_lines(text))
              << std::flush;
    return Status::ok;
  };
  const auto add_clips = [&](const JobPlan& planned, const std::string& when, int batch) {
    add(planned, when + describe_clips(planned.clips, planned.kinds),
        form_batches(planned.clips, planned.kinds, batch));
  };
  if (job.train) {
    const train::Samples samples = fitting_training(job, conditions);
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
  const JobPlan planned = fitting_job(job, conditions);
  add_clips(planned, "", job.batch);
  if (!options.simulate.empty()) {
    constexpr std::int64_t max_spans = 1'000'000;
    const auto batches = form_batches(planned.clips, planned.kinds, job.batch);
    const Simulation simulation = simulate(planned, planned, batches, options.failures, max_spans);
    const double undisturbed = simulate(planned, planned, batches).seconds;
    write_simulation(options.simulate, simulation, job, planned, program_info(), described);
    described["simulated"] = describe(simulation, undisturbed);
    text += describe_simulation(simulation, undisturbed, options.simulate);
  }
  return print();
}

}  // namespace reelmesh::app
