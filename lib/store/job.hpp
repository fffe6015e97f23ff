#pragma once
// The output folder and its index, job.h5.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace reelmesh {

/// What job.h5 tells of a job. The attributes are program, version, git_revision, options (one
/// "section.key = value" a line: again an input file), plan, hosts (one text a rank), start, end.
struct JobRecord {
  std::string program, version, revision;
  std::vector<std::pair<std::string, std::string>> options;  ///< "section.key", "value"
  std::string plan;
  std::vector<std::string> hosts;  ///< of each rank
  std::string start, end;          ///< ISO 8601, as iso8601_now gives
  int clips = 0;
  bool trace = false;
};

/// "2026-01-31T12:34:56Z"
std::string iso8601_now();

/// Writes folder/job.h5 by this rank alone, replacing what was there: attributes, and external
/// links /clips/000000 … and, with `trace`, /trace to the other files of the folder, which may come
/// later and move with it. Under a temporary name until complete. Error(cannot_create), Error(io).
void write_job(const std::filesystem::path& folder, const JobRecord& record);

/// What to do about an output folder that holds something.
enum class Existing { fail, resume, replace };

/// Makes folder and folder/clips, by one rank. With `fail`, a folder that is not empty is an error;
/// `replace` removes what an earlier job wrote there (job.h5, trace.h5, clips/NNNNNN.h5, restart/)
/// and no other file; `resume` keeps it. Left-over temporary files of ours go in both cases.
/// Error(cannot_create), also where the folder cannot be made or written.
void prepare_output(const std::filesystem::path& folder, Existing existing);

}  // namespace reelmesh
