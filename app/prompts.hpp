#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "plan/job.hpp"

namespace reelmesh::app {

/// The clips that a prompts file asks for, in its order. A .txt file has one prompt a line, with
/// empty lines and lines that begin with '#' passed over. A .jsonl file has one JSON object a line:
/// `prompt`, and if wanted `negative_prompt`, `clean`, `seed`, `height`, `width`, `frames`, `fps`,
/// `steps`, `guidance`; or `token_ids`, beside which `prompt` is but a name. Clips without a
/// negative prompt of their own get `negative`.
///
/// Errors name file and line: no_input (no such file), data (not UTF-8, not JSON), usage (an
/// unknown field, with the nearest known one; a field that is missing, twice or out of its limits;
/// a file name that ends otherwise). `option` is where the file was named.
std::vector<ClipRequest> read_prompts(const std::filesystem::path& file,
                                      const std::string& negative, const std::string& option);

}  // namespace reelmesh::app
