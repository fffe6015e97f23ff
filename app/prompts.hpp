#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "job/requests.hpp"

namespace reelmesh::app {

/// What clips have of which a prompt file says nothing else.
struct PromptDefaults {
  std::string negative;          ///< their negative prompt
  int repeat = 1;                ///< how many clips are made of each prompt
  std::filesystem::path images;  ///< folder of the images that VBench's entries name (image_name)
};

/// The clips of a prompt file, in its order. A .txt file has one prompt per line; empty lines and
/// lines that begin with '#' are skipped; if there are any, the number of prompts and of these
/// lines is logged. A .jsonl file has one JSON object per line (parse_repeated); with `token_ids`,
/// `prompt` is only a name. A .json file has a list of such objects, or of prompts, or of entries
/// of the lists of VBench (VBench_full_info.json) and VBench++ (vbench2_i2v_full_info.json): the
/// prompt is `prompt_en`, and `dimension`, `auxiliary_info` and `image_type` are for VBench alone.
/// A prompt that is repeated gives clips that follow one another (add_repeated).
///
/// Errors name file and line, or place in the list: no_input (no such file), data (not UTF-8; not
/// JSON, as parse_json: also a field that is given twice), usage (an unknown field, with a
/// suggestion; a field that is missing or out of range; another file extension; too many clips).
/// option: where the file was given, for messages.
std::vector<ClipRequest> read_prompts(const std::filesystem::path& file,
                                      const PromptDefaults& defaults, const std::string& option);

/// Logs a warning if prompts of clips have no words.
void warn_of_empty_prompts(const std::vector<ClipRequest>& clips);

}  // namespace reelmesh::app
