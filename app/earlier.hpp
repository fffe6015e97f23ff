#pragma once
// run --from: the options and clips of an earlier job, from its job.h5.
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "given.hpp"
#include "job/job.hpp"

namespace reelmesh::app {

struct EarlierJob {
  /// All in effect, except prompts, output.path and output.if-exists. Paths that are relative to
  /// the folder of that job, and not found from this one, are made absolute.
  std::vector<Given> options;
  std::vector<ClipRequest> clips;  ///< with all their settings
  std::string weights_hash;
};

/// names: known keys, "section.key". Errors as read_job; Error(data) also for options and requests
/// that this program does not take.
EarlierJob read_earlier(const std::filesystem::path& file, std::span<const std::string> names);

/// Replaces what the command line gives for all clips: it wins over the requests. line: its
/// options; negative: its prompt.negative.
void override_requests(std::vector<ClipRequest>& clips, std::span<const Given> line,
                       const std::string& negative);

/// Error(usage) if the results would be written to the folder of the earlier job.
void require_other_folder(const std::filesystem::path& file, const std::filesystem::path& output);

}  // namespace reelmesh::app
