#pragma once
// The output folder and its index, job.h5.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "store/lock.hpp"

namespace reelmesh {

/// How far a clip of a job has come.
struct ClipState {
  enum State { missing, saved, failed, complete };
  State state = missing;
  std::string reason;  ///< why it failed
};

/// The contents of job.h5. The attributes are program, version, git_revision, options (one
/// "section.key = value" per line; usable as an input file), plan, hosts (one string per rank),
/// start, end, status.
struct JobRecord {
  std::string program, version, revision;
  std::vector<std::pair<std::string, std::string>> options;  ///< "section.key", "value"
  std::string plan;
  std::vector<std::string> hosts;  ///< per rank
  std::string start, end;          ///< ISO 8601, as iso8601_now gives
  /// "unfinished" while the job runs, and after an error; "complete"; "stopped"; "failed": some
  /// clips have failed.
  std::string status;
  std::vector<ClipState> clips;  ///< each has a link /clips/NNNNNN and a row of the table /states
  bool trace = false;            ///< whether to link /trace
};

/// "2026-01-31T12:34:56Z"
std::string iso8601_now();

/// Writes folder/job.h5 from this rank only, replacing an existing one: attributes, the table
/// /states (clip, state, reason), and external links /clips/000000 … and, with `trace`, /trace to
/// the other files of the folder. The links are
/// relative, so the folder can be moved, and their targets need not exist yet. Under a temporary
/// name until complete. Error(cannot_create), Error(io).
void write_job(const std::filesystem::path& folder, const JobRecord& record);

/// What to do if the output folder is not empty.
enum class Existing { fail, resume, replace };

/// Creates folder and folder/clips; called on one rank. `fail`: Error(cannot_create) if the folder
/// is not empty. `replace`: removes the files of an earlier job (job.h5, trace.h5, status.json,
/// clips/NNNNNN.h5, restart/) and no others. `resume`: keeps them. Left-over temporary files of
/// jobs are removed in any case. Error(cannot_create) also if the folder cannot be created or
/// written, or if another job works on it. → the lock of the folder, for the time of the job.
FolderLock prepare_output(const std::filesystem::path& folder, Existing existing);

}  // namespace reelmesh
