#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "plan/job.hpp"

namespace reelmesh::app {

/// The clips of a prompt file, in its order. A .txt file has one prompt per line; empty lines and
/// lines that begin with '#' are skipped. A .jsonl file has one JSON object per line with `prompt`,
/// and optionally `negative_prompt`, `clean`, `seed`, `height`, `width`, `frames`, `fps`, `steps`,
/// `guidance`; or with `token_ids`, in which case `prompt` is only a name. Clips without a negative
/// prompt get `negative`.
///
/// Errors name file and line: no_input (no such file), data (not UTF-8; not JSON, as parse_json:
/// also a field that is given twice), usage (an unknown field, with a suggestion; a field that is
/// missing or out of range; another file extension). option: where the file was given, for
/// messages.
std::vector<ClipRequest> read_prompts(const std::filesystem::path& file,
                                      const std::string& negative, const std::string& option);

/// One line of a .jsonl file. where: its source, for messages.
ClipRequest parse_request(const std::string& line, const std::string& negative,
                          const std::string& where);

}  // namespace reelmesh::app
