#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh::app {

/// The lines of a text file, without line ends (LF, CRLF or CR) and without a byte order mark.
/// Error(no_input) if the file does not exist, Error(data) if it is larger than 64 MiB or not
/// UTF-8; messages begin with `option`.
std::vector<std::string> read_lines(const std::filesystem::path& file, const std::string& option);

/// Without leading and trailing spaces and tabs.
std::string_view trimmed(std::string_view text);

}  // namespace reelmesh::app
