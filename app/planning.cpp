#include "planning.hpp"

#include <cstdlib>
#include <ctime>
#include <iostream>

#include "base/log.hpp"
#include "base/new_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "forecast/describe.hpp"
#include "job/machine.hpp"
#include "job/machine_file.hpp"
#include "ops/onednn.hpp"

namespace reelmesh::app {
namespace {

void warn_of_time_limit(const Allocation& allocation, const Prediction& prediction) {
  if (!allocation.seconds_left || prediction.high <= *allocation.seconds_left) return;
  log::warning("the job is predicted to take {} to {}, but {} ends in {}",
               format_seconds(prediction.low), format_seconds(prediction.high), allocation.source,
               format_seconds(std::max(0.0, *allocation.seconds_left)));
}

void warn_without_weights(const Job& job) {
  std::vector<std::string> missing;
  for (const ModelPart part : job.model.parts()) {
    if (!job.model.has_weights(part)) missing.push_back(job.model.folder(part).string());
  }
  if (missing.empty()) return;
  log::warning(
      "no weights in {}: planned from the configs, with files in {} (numerics.dtype){}",
      fmt::join(missing, ", "), name_of(job.dtype),
      job.model.has_tokenizer() ? "" : "; without a tokenizer, texts count as the longest");
}

}  // namespace

Allocation allocation_of_program() {
  return find_allocation([](const char* name) -> const char* { return std::getenv(name); },
                         static_cast<double>(std::time(nullptr)));
}

void prepare_plan(const Job& job) {
  choose_products(job);
  warn_of_float32(job, job.backend == Backend::cuda);
  check_model(job);
}

Status plan_with(const PlannedOptions& options, const std::function<Status()>& work) {
  if (log::launch_rank() != first_rank) return Status::ok;
  try {
    prepare_plan(options.job);
    if (!options.preset) warn_without_weights(options.job);
    return work();
  } catch (const Error& error) {
    if (!options.preset) throw;
    fail(error.status(), "{}", options.preset->named(error.what()));
  }
}

Conditions conditions_of(const PlannedOptions& options, int ranks) {
  const Job& job = options.job;
  const int of_node = options.ranks_per_node.value_or(ranks);
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank / of_node);
  Conditions conditions =
      plan_conditions(job, ranks, job.threads.value_or(1), std::move(node_of),
                      ops::compute_dtype(job.dtype), job.backend == Backend::cuda);
  if (!conditions.on_gpu) conditions.node_bytes = options.node_bytes;
  if (job.machine != nullptr)
    conditions.on_disk = bytes_on_disk(*Family::open(job.model), job.dtype);
  return conditions;
}

JobPlan fitting_job(const Job& job, const Conditions& conditions) {
  JobPlan planned = plan_job(job, conditions, probe_inputs(job));
  require_fit(job, planned, conditions);
  return planned;
}

void print_plans(const std::vector<ComparedPlan>& plans, bool with_ranks, const std::string& remark,
                 bool as_json) {
  if (as_json) {
    std::cout << nlohmann::json{{"compared", describe(plans)}}.dump(2, ' ', ascii_only) << '\n';
  } else {
    std::cout << printable_lines(comparison_text(plans, with_ranks) + remark);
  }
}

void PlanPage::add(const PlannedOptions& options, const JobPlan& planned, const std::string& clips,
                   const std::vector<BatchOutline>& batches) {
  const auto prediction = predict(planned, batches);
  nlohmann::json own = describe(planned, batches, prediction);
  text += fmt::format("{}\n{}", clips, plan_text(own, Detail::ranks));
  if (described.is_null()) {
    own["sbatch"] =
        submission(options.job, planned, prediction, options.given, find_installation());
    text += fmt::format("\nwith Slurm:\n{}\n", own["sbatch"].get<std::string>());
    if (prediction) warn_of_time_limit(options.allocation, *prediction);
    described = std::move(own);
  } else {
    described["samples"] = std::move(own);
  }
}

void PlanPage::add_clips(const PlannedOptions& options, const JobPlan& planned,
                         const std::string& when, const Job& job) {
  const std::vector<ClipOutline> clips = clips_to_plan(job, planned);
  add(options, planned, when + clips_text(clips, planned.kinds),
      form_batches(clips, planned.kinds, job.batch));
}

Status PlanPage::print(bool as_json) const {
  std::cout << (as_json ? described.dump(2, ' ', ascii_only) + "\n" : printable_lines(text))
            << std::flush;
  return Status::ok;
}

void write_machine(const std::filesystem::path& file, const MachineTimes& machine) {
  NewFile written(file);
  written.write(to_text(machine));
  written.commit();
}

}  // namespace reelmesh::app
