#pragma once
// The index of an output folder, job.h5.
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "store/provenance.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh {

/// How far a clip of a job has come.
struct ClipState {
  enum State {
    missing,
    saved,
    failed,
    complete,
    preview,  ///< left by sample.stop-after: saved, and its file is a preview
  };
  State state = missing;
  std::string reason;  ///< why it failed

  /// Whether its file is one of this job: a complete clip, or a preview.
  bool has_file() const { return state == complete || state == preview; }
};

/// Sizes with more clips have no group in /videos: HDF5 needs 15 KB of memory for each clip of a
/// virtual dataset.
constexpr std::size_t max_videos = 4000;

/// A clip in the index.
struct JobClip {
  ClipState state;
  /// All that was asked for: a JSON object that is valid as a line of prompt.file.
  std::string request;
  // For /videos.
  std::string prompt;
  std::uint64_t seed = 0;
  double fps = 0;
  Shape video;  ///< [frame, height, width, channel]; empty: the clip is not there
};

/// An encoded sample of a training, in the index.
struct JobSample {
  std::int64_t index = 0;    ///< in the data
  bool validates = false;    ///< it is of data.validation
  std::string prompt, file;  ///< caption and video, as given
  /// A file of encoded samples, and its arrays.
  struct File {
    std::filesystem::path path;
    std::vector<std::string> arrays;
  };
  File video, caption;
};

/// The contents of job.h5.
struct JobRecord {
  std::string program, version, revision;
  /// "section.key", "value": in effect; usable as a job file.
  std::vector<std::pair<std::string, std::string>> options;
  std::string plan;       ///< text
  std::string plan_json;  ///< what `reelmesh plan --json` prints
  std::string tuned;      ///< JSON: layouts that were timed; empty: none
  /// A line for each time that the job was planned again while it ran, for lack of memory.
  std::vector<std::string> planned_again;
  /// Of a training: a line for each step from which its learning rate had other options.
  std::string new_rates;
  std::vector<std::string> hosts;  ///< per rank
  std::string start, end;          ///< ISO 8601, as iso8601_now gives
  /// From the start of the program to its end: as the plan said, if the machine's times are known,
  /// and as measured, once the job is complete.
  std::optional<double> predicted_seconds, measured_seconds;
  /// "unfinished" while the job runs, and after an error; "complete"; "stopped"; "failed": some
  /// clips have failed; "simulated": nothing was made.
  std::string status;
  std::vector<JobClip> clips;      ///< each has a row of the table /states
  std::vector<JobSample> samples;  ///< of a training
  bool trace = false;              ///< whether to link /trace
  Provenance provenance;

  bool unfinished() const { return status == "unfinished"; }
  /// Whether /clips and /videos lead to the file of this clip.
  bool lists(std::size_t clip) const { return unfinished() || clips[clip].state.has_file(); }
};

/// "2026-01-31T12:34:56Z"
std::string iso8601(std::chrono::system_clock::time_point time);
std::string iso8601_now();

/// Writes folder/job.h5 from this rank only, replacing an existing one: attributes, /states,
/// /requests, /videos, /provenance, and external links /clips/000000 … and, with `trace`, /trace to
/// the other files of the folder; of a training, groups /samples/000000 … and
/// /validation_samples/000000 … of links into the cache, with the attributes `prompt` and `file`.
/// Links to files in the folder are relative, so it can be moved. While the job
/// is unfinished all clips are linked, whose files need not exist; afterwards those that are
/// complete or previews, and a trace that exists, since netCDF opens no file with a link that leads
/// nowhere. Under a temporary name until complete. Error(cannot_create), Error(io).
void write_job(const std::filesystem::path& folder, const JobRecord& record);

/// JobRecord::new_rates of the job in the folder; empty if it has none.
std::string read_new_rates(const std::filesystem::path& folder);

}  // namespace reelmesh
