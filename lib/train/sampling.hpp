#pragma once
// Clips that are made with what is trained (train.sample-every), by the code of `reelmesh run`.
#include <functional>
#include <string>

#include "base/error.hpp"
#include "job/job_record.hpp"
#include "train/samples.hpp"

namespace reelmesh::train {

/// OUT/samples/step-000100, the output folder of the job that makes them after 100 steps.
std::filesystem::path sampling_folder(const std::filesystem::path& output, std::int64_t step);

/// That job, as `run` would get it by the options of the training that both have. It resumes: clips
/// that are there are kept. trained: the file of the LoRA, or the folder of the transformer; empty
/// for a plan.
Job sampling_job(const Job& job, const Samples& samples, std::int64_t step,
                 const std::filesystem::path& trained);

/// "before the first step, after each 100 and after the last: "
std::string when_sampled(const TrainSettings& settings);

/// Calls `check`. The messages of its errors begin with train.sample-every.
void of_sampling(const std::function<void()>& check);

/// Its plan before there is a LoRA, with the memory for one. clips: sampling_job(); inputs: their
/// files, as for plan_job. Errors as plan_job.
JobPlan plan_sampling(const Job& clips, const Conditions& conditions, Inputs inputs,
                      const TrainSettings& settings);

/// Makes the clips. Its spans are one span of the training. Status and errors as of pipeline::run.
/// Collective.
Status make_clips_together(const comm::Group& ranks, const Job& clips, const ProgramInfo& program);

}  // namespace reelmesh::train
