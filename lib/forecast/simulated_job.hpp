#pragma once
// Files of a simulated job.
#include "forecast/simulation.hpp"
#include "job/job_record.hpp"

namespace reelmesh {

/// Error(cannot_create) unless there is nothing of this name, or an empty folder.
void require_new(const std::filesystem::path& folder);

/// Writes folder/trace.h5 and folder/job.h5, as the job would, but without clips: all are missing,
/// and the status is "simulated". The job starts now. described: of describe(), with a prediction.
/// Errors as require_new(); Error(io).
void write_simulation(const std::filesystem::path& folder, const Simulation& simulation,
                      const Job& job, const JobPlan& planned, const ProgramInfo& program,
                      const nlohmann::json& described);

}  // namespace reelmesh
