#pragma once
// A job and a machine → the plan that `run` executes and `plan` prints. No MPI: every rank computes
// the same plan.
#include <functional>

#include "forecast/choice.hpp"

namespace reelmesh {

/// The batches of these clips, in the order in which they are made: the longest first if there are
/// several replicas, otherwise as form_batches() gives them.
std::vector<BatchOutline> ordered_batches(const JobPlan& planned,
                                          std::span<const ClipOutline> clips, int max_clips);

/// Makes the clips and the plan; reads the model's configs. inputs: the facts of all files that
/// clips begin from. The layout is that of Choice::best(). Errors as Family::open, Family::clips
/// and make_plan; also Error(no_input) if the file that parallel.device-map names is missing. Time
/// and memory are linear in the number of clips.
///
/// With job.train: of a training on these clips, which are without guidance. Steps
/// of train.batch clips take the place of denoising, videos are encoded and none are decoded, and
/// all embeddings are in files; one replica unless job.parallel says how many.
///
/// later: memory for LoRAs that are not there yet.
JobPlan plan_job(const Job& job, const Conditions& conditions, Inputs inputs = {},
                 TrainingToPlan training = {}, LoraMemory later = {});

/// The clips that a planned job makes, those of Job::chosen after the steps that their restart
/// files say.
std::vector<ClipOutline> clips_to_plan(const Job& job, const JobPlan& planned);

/// Makes the plan again for a job of which only these clips are still to be made: fewer clips may
/// be made sooner by fewer, larger replicas.
void plan_again(JobPlan& planned, const Job& job, const Conditions& conditions,
                const std::vector<ClipOutline>& clips);

/// Makes the plan for each of these requests in place of the job's and, if it is possible and fits,
/// calls use() with the request while it is planned.plan, without planned.tail. The last one stays.
void for_each_plan(JobPlan& planned, const Job& job, const Conditions& conditions,
                   const std::vector<ParallelRequest>& requests,
                   const std::function<void(const ParallelRequest&)>& use);

/// As Choice::all(), for these batches.
std::vector<Candidate> layouts_of_job(const JobPlan& planned, const Job& job,
                                      const Conditions& conditions,
                                      const std::vector<BatchOutline>& batches);

/// Error(unavailable) if the plan exceeds a memory limit: names the rank, the bytes needed, the
/// limit, and what would help. It makes further plans to find out what helps.
void require_fit(const Job& job, const JobPlan& planned, const Conditions& conditions);

}  // namespace reelmesh
