#pragma once
// A requested clip as a line of JSON: of a prompt file, and of /requests in job.h5.
#include <string>
#include <string_view>

#include "job/job.hpp"

namespace reelmesh {

/// The names of the fields that a line may have beside the prompt, in words: "a, b or c".
std::string optional_fields();

/// One line. A missing negative prompt is `negative`. where: its source, for messages. Error(data)
/// unless it is a JSON object without repeated fields, Error(usage) for an unknown field, with a
/// suggestion, and for a field that is missing or out of range.
ClipRequest parse_request(const std::string& line, const std::string& negative,
                          const std::string& where);

/// The line that parse_request reads as this request.
std::string request_line(const ClipRequest& request);

/// The host memory that a request takes.
std::int64_t request_bytes(const ClipRequest& request);

/// Removes from a request what is set by this option for all clips: the option wins.
void forget(ClipRequest& request, std::string_view option);

}  // namespace reelmesh
