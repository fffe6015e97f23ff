#include "text_file.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <system_error>

#include "base/error.hpp"
#include "job/values.hpp"

namespace reelmesh::app {

std::vector<std::string> read_lines(const std::filesystem::path& file, const std::string& option) {
  constexpr std::uintmax_t limit = 64U << 20U;
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  require(std::filesystem::exists(status), Status::no_input, "{}: file '{}' not found", option,
          file.string());
  require(std::filesystem::is_regular_file(status), Status::no_input, "{}: '{}' is not a file",
          option, file.string());
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  require(!error && size <= limit, Status::data,
          "{}: found more than 64 MiB in '{}', expected a text file", option, file.string());

  std::ifstream in(file, std::ios::binary);
  require(in.is_open(), Status::no_input, "{}: '{}' cannot be opened for reading", option,
          file.string());
  std::vector<std::string> lines;
  std::string line;
  while (std::getline(in, line)) {
    if (lines.empty() && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    if (line.ends_with('\r')) line.pop_back();
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find('\r', begin), line.size());
      const std::string_view text = std::string_view(line).substr(begin, end - begin);
      require_text(text, fmt::format("{}:{}", file.string(), lines.size() + 1));
      lines.emplace_back(text);
      begin = end + 1;
    }
  }
  require(in.eof(), Status::io, "{}: reading '{}' failed", option, file.string());
  return lines;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace reelmesh::app
