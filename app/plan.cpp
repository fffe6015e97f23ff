// reelmesh plan: the plan of a job or a training, on one number of ranks or on several.
#include <boost/program_options/options_description.hpp>

#include "base/units.hpp"
#include "commands.hpp"
#include "forecast/describe.hpp"
#include "job/machine_file.hpp"
#include "planning.hpp"
#include "train/sampling.hpp"

namespace reelmesh::app {

PlanOptions parse_plan(int argc, const char* const* argv, const Allocation& allocation) {
  constexpr std::array own{"deadline"};
  const PlannedWords words = parse_planned(argc, argv, allocation, own, "", "deadline");
  PlanOptions options{words.options, {}};
  if (const auto given = words.own.find("deadline"); given != words.own.end()) {
    options.deadline = parse_wait(given->second.value, given->second.where);
    if (!options.ranks.empty()) require_one_count(options, "--deadline");
  }
  return options;
}

HelpPage plan_help() {
  std::vector<HelpLine> lines{
      {"--ranks N,M,...", "several numbers of ranks are compared, with device.machine"},
      {"--deadline TIME",
       "plan with the fewest ranks, at most --ranks, with which the job is "
       "predicted to take at most this time, such as 2h, with device.machine"}};
  const std::vector<HelpLine> all = planned_help();
  lines.insert(lines.begin(), all.front());
  lines.insert(lines.end(), all.begin() + 1, all.end());
  return {
      .purpose =
          "Prints the layout that run or train would use on N ranks, without MPI or GPUs:\n"
          "roles, device map, boxes, memory, bytes sent; with device.machine also times.\n"
          "Refuses a job that does not fit (status 69), naming what would make it fit.",
      .usage = "reelmesh plan --ranks N [--config FILE] [--section.key value ...]",
      .notes = options_of_job,
      .sections = {{"Options", lines},
                   {"Commands beside it",
                    {{"plan compare", "the layouts that fit, beside one another by their times"},
                     {"plan simulate OUT", "the job played event by event, for reelmesh-report"},
                     {"plan calibrate FILE", "a machine file for device.machine, measured here"},
                     {"plan correct OUT",
                      "a job that is done beside its prediction, and a machine file "
                      "corrected by it"}}}},
      .examples =
          "reelmesh plan --model.path models/CogVideoX-2b --ranks 6\n"
          "reelmesh plan --preset cogvideox-5b --ranks 32 --device-memory 16GiB\n"
          "reelmesh plan --config job.cfg --ranks 1,2,4,8 --device.machine node.cfg",
      .operands = {},
      .has_job_options = true};
}

namespace {

train::Samples fitting_training(const Job& job, const Conditions& conditions) {
  train::Samples samples = train::plan_samples(job, conditions, train::checked_buckets(job),
                                               train::listed_samples(job.train->data),
                                               train::listed_validation(job.train->data));
  require_fit(samples.clips, samples.planned, conditions);
  return samples;
}

// The plan of the job, or of the training, on so many ranks.
ComparedPlan planned_in_short(const PlanOptions& options, int ranks) {
  const Job& job = options.job;
  const Conditions conditions = conditions_of(options, ranks);
  if (job.train) return in_short(fitting_training(job, conditions).planned, {});
  const JobPlan planned = fitting_job(job, conditions);
  return in_short(planned, form_batches(clips_to_plan(job, planned), planned.kinds, job.batch));
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
  constexpr int default_max = 1024;
  const int max = options.ranks.empty() ? default_max : options.ranks.front();
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
  for (int ranks = 1;; ranks = std::min(2 * ranks, max)) {
    if (meets(ranks)) {
      for (int between = missed + 1; between < ranks; ++between) {
        if (ranks - missed > 16 && (between - missed) % ((ranks - missed) / 16) != 0) continue;
        if (meets(between)) return between;
      }
      return ranks;
    }
    missed = ranks;
    if (ranks == max) break;
  }
  require(best.has_value(), Status::unavailable, "--deadline: no number of ranks up to {} fits: {}",
          max, refused);
  fail(Status::unavailable,
       "--deadline: no number of ranks up to {} is predicted to take at most {}; the best is {} "
       "with {} ranks ({})",
       max, format_seconds(deadline), format_seconds(best->prediction.job), best->ranks,
       best->layout);
}

void add_training(PlanPage& page, const PlannedOptions& options, const Conditions& conditions) {
  const Job& job = options.job;
  const train::Samples samples = fitting_training(job, conditions);
  page.add(options, samples.planned, training_text(samples.planned, samples.learned), {});
  if (job.train->sample_every == 0) return;
  const Job clips = train::sampling_job(job, samples, 0, {});
  JobPlan planned;
  train::of_sampling([&] {
    planned = train::plan_sampling(clips, conditions, probe_inputs(clips), *job.train);
    require_fit(clips, planned, conditions);
  });
  page.add_clips(options, planned,
                 fmt::format("\nclips are made {}", train::when_sampled(*job.train)), clips);
}

}  // namespace

Status plan_command(int argc, const char* const* argv) {
  const PlanOptions options = parse_plan(argc, argv, allocation_of_program());
  return plan_with(options, [&] {
    const Job& job = options.job;
    if (options.ranks.size() > 1 || options.deadline) require_machine(job);
    if (options.ranks.size() > 1) return print_rank_counts(options);
    const Conditions conditions =
        conditions_of(options, options.deadline ? fewest_ranks(options) : options.ranks.front());
    PlanPage page;
    if (job.train) {
      add_training(page, options, conditions);
    } else {
      page.add_clips(options, fitting_job(job, conditions), "", job);
    }
    return page.print(options.json);
  });
}

}  // namespace reelmesh::app
