#pragma once
// A requested clip as a line of JSON: of a prompt file, and of /requests in job.h5.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "job/job.hpp"

namespace reelmesh {

/// One field of a line.
struct RequestField {
  std::string name;    ///< "negative_prompt"
  const char* option;  ///< that sets it for all clips: "prompt.negative"; empty: none
  bool optional;       ///< a user may leave it out, and give it; false for what is explained apart
};

/// The fields that a line may have.
std::vector<RequestField> request_fields();
/// Those that a user may add, in words: "a, b or c".
std::string optional_fields();

/// One line. A missing negative prompt is `negative`. where: its source, for messages. Error(data)
/// unless it is a JSON object without repeated fields, Error(usage) for an unknown field, with a
/// suggestion, and for a field that is missing or out of range.
ClipRequest parse_request(const std::string& line, const std::string& negative,
                          const std::string& where);

/// The line that parse_request reads as this request.
std::string request_line(const ClipRequest& request);

/// Removes from a request what is set by this option for all clips: the option wins.
void forget(ClipRequest& request, std::string_view option);

}  // namespace reelmesh
