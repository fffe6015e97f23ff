#pragma once
// A requested clip as a line of JSON: of a prompt file, and of /requests in job.h5.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "job/job.hpp"

namespace reelmesh {

/// The names of the fields that a line may have beside the prompt, in words: "a, b or c".
std::string optional_fields();

/// One line. A missing negative prompt is `negative`. where: its source, for messages. Error(data)
/// unless it is a JSON object without repeated fields, Error(usage) for an unknown field, with a
/// suggestion, and for a field that is missing or out of range.
ClipRequest parse_request(const std::string& line, const std::string& negative,
                          const std::string& where);

/// A clip as a prompt file has it, and how many clips are made of it.
struct RepeatedRequest {
  ClipRequest request;
  std::optional<int> repeat;  ///< default: prompt.repeat
};

/// As parse_request, with `repeat`, which lines of prompt files may have.
RepeatedRequest parse_repeated(const std::string& line, const std::string& negative,
                               const std::string& where);
RepeatedRequest parse_repeated(nlohmann::json object, const std::string& negative,
                               const std::string& where);

inline constexpr int max_clips = 1'000'000;  ///< of a job: their files are named by six digits

/// prompt.repeat, or `repeat` of a line. Error(usage) unless from 1 to max_clips.
int parse_repeat(std::string_view text, const std::string& where);

/// Adds so many clips of a request. If it has a seed, they have that one and those that follow.
/// Error(usage) if the clips are more than max_clips, or a seed exceeds 64 bits.
void add_repeated(std::vector<ClipRequest>& clips, const ClipRequest& request, int repeat);

/// The line that parse_request reads as this request.
std::string request_line(const ClipRequest& request);

/// The host memory that a request takes.
std::int64_t request_bytes(const ClipRequest& request);

/// Removes from a request what is set by this option for all clips: the option wins.
void forget(ClipRequest& request, std::string_view option);

}  // namespace reelmesh
