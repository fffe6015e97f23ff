#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "job/requests.hpp"

namespace reelmesh::app {

/// The clips of a prompt file, in its order. A .txt file has one prompt per line; empty lines and
/// lines that begin with '#' are skipped; if there are any, the number of prompts and of these
/// lines is logged. A .jsonl file has one JSON object per line (parse_request); with `token_ids`,
/// `prompt` is only a name. Clips without a negative prompt get `negative`.
///
/// Errors name file and line: no_input (no such file), data (not UTF-8; not JSON, as parse_json:
/// also a field that is given twice), usage (an unknown field, with a suggestion; a field that is
/// missing or out of range; another file extension). option: where the file was given, for
/// messages.
std::vector<ClipRequest> read_prompts(const std::filesystem::path& file,
                                      const std::string& negative, const std::string& option);

}  // namespace reelmesh::app
