#pragma once
// A machine's times, corrected by a job that it has done.
#include <filesystem>
#include <string>
#include <vector>

#include "forecast/plan_job.hpp"
#include "forecast/prediction.hpp"

namespace reelmesh {

/// A finished job, of which the folder has job.h5 and trace.h5.
struct EarlierRun {
  std::filesystem::path folder;
  double seconds = 0;        ///< from the start of the program to its end
  ParallelRequest parallel;  ///< that leaves its layout no choice
  std::vector<int> node_of;  ///< of each rank
  int threads = 1;           ///< of a rank, the most
};

/// Error(no_input), Error(data) as read_job() and read_trace(); Error(data) also if the job did not
/// end, or was a training. parallel: as the job gave it.
EarlierRun read_run(const std::filesystem::path& folder, const ParallelRequest& parallel);

/// Seconds of a stage of the whole job, or of a part of it.
struct ComparedStage {
  const char* name;
  double predicted = 0, measured = 0;
};

struct Correction {
  MachineTimes machine;
  std::vector<ComparedStage> stages;  ///< in the order of the work; those that were measured
};

/// The machine of a planned job with all its times in the ratio of measured to predicted times of
/// the stages that need them: steps (products, attention, norms and copies), decoding (convolutions
/// and norms of images), loading (weights and first use of memory), writing, and what is beside the
/// stages (`start`). Links and the disk stay. Of the job's data type. planned: with the layout of
/// the run. Error(data) if operations of a step are not those of the plan, as in a job of another
/// model.
Correction corrected(const JobPlan& planned, const std::vector<BatchOutline>& batches,
                     const EarlierRun& run);

/// A table of the stages for people; for programs.
std::string correction_text(const Correction& correction);
nlohmann::json describe(const Correction& correction);

}  // namespace reelmesh
