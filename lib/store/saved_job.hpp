#pragma once
// What job.h5 of an earlier job says, to run that job again.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

struct SavedJob {
  std::string options;                ///< JobRecord::options as text, one a line
  std::vector<std::string> requests;  ///< JobClip::request of each clip
  std::string working_folder;         ///< that relative paths are relative to
  std::string weights_hash;           ///< of the checkpoint
  std::string plan_json;              ///< JobRecord::plan_json; empty if it is missing
  /// JobRecord::measured_seconds; none if the job was not done, or if it is no number.
  std::optional<double> measured_seconds;
};

/// The attribute `checksum` of job.h5, of what SavedJob has.
std::string checksum_of_job(std::string_view options, std::vector<std::string_view> requests,
                            std::string_view working_folder, std::string_view weights_hash);

/// Reads job.h5, which is untrusted: external links are not followed. Error(no_input) if it is
/// missing; Error(data) if it is damaged, of another program, of a newer layout, or without
/// requests.
SavedJob read_job(const std::filesystem::path& path);

}  // namespace reelmesh
