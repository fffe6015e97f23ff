#pragma once
// What the subcommands that run on all ranks have in common.
#include <functional>

#include "comm/group.hpp"
#include "comm/watchdog.hpp"
#include "job/job.hpp"
#include "job/job_record.hpp"

namespace reelmesh::app {

/// Called with a job when its options are known, before its prompts are read.
using OptionsKnown = std::function<void(const Job& job)>;
/// Reads the job of a command line.
using ParseJob = std::function<Job(const OptionsKnown& known)>;
/// Does the job on the ranks of a group, as pipeline::run.
using DoJob = std::function<Status(const comm::Group& ranks, const Job& job,
                                   const ProgramInfo& program, comm::Watchdog* watchdog)>;

/// Parses a job and does it on all ranks, from MPI_Init to MPI_Finalize, with signals, the time
/// limit and the watchdog as the options say. Errors are thrown: those of the options before
/// MPI_Init; later ones on one rank only, while another rank reports its own and ends all.
Status parse_and_do(const ParseJob& parse, const DoJob& work);

}  // namespace reelmesh::app
