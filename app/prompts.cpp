#include "prompts.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/stop.hpp"
#include "job/values.hpp"
#include "text_file.hpp"

namespace reelmesh::app {
namespace {

std::string counted(std::size_t count, const char* one, const char* several) {
  return fmt::format("{} {}", count, count == 1 ? one : several);
}

std::string skipped_lines(std::size_t comments, std::size_t empty) {
  std::string text;
  if (comments > 0) text = counted(comments, "comment", "comments");
  if (empty > 0) {
    text += (text.empty() ? "" : " and ") + counted(empty, "empty line", "empty lines");
  }
  return fmt::format("; {} skipped", text);
}

}  // namespace

std::vector<ClipRequest> read_prompts(const std::filesystem::path& file,
                                      const std::string& negative, const std::string& option) {
  const bool lines_of_json = file.extension() == ".jsonl";
  require(lines_of_json || file.extension() == ".txt", Status::usage,
          "{}: found '{}', expected a .txt or .jsonl file", option, file.string());
  std::vector<ClipRequest> clips;
  int number = 0;
  std::size_t comments = 0, empty = 0;
  const std::vector<std::string> lines = read_lines(file, option);
  clips.reserve(lines.size());
  for (const std::string& line : lines) {
    stop::leave_if_requested("the prompts are read");
    const std::string where = fmt::format("{}:{}", file.string(), ++number);
    const std::string_view text = trimmed(line);
    if (text.empty()) {
      ++empty;
    } else if (!lines_of_json && text.front() == '#') {
      ++comments;
    } else if (lines_of_json) {
      clips.push_back(parse_request(line, negative, where));
    } else {
      require_prompt(text, where);
      clips.push_back({.prompt = std::string(text), .negative_prompt = negative});
    }
  }
  require(!clips.empty(), Status::usage, "{}: found no prompt in '{}', expected at least one",
          option, file.string());
  if (comments + empty > 0) {
    log::info("{} from {}{}", counted(clips.size(), "prompt", "prompts"), file.string(),
              skipped_lines(comments, empty));
  }
  return clips;
}

}  // namespace reelmesh::app
