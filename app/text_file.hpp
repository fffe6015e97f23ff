#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh::app {

/// The lines of a text file without their ends (LF or CRLF) and without a byte order mark.
/// Error(no_input) where there is no such file, Error(data) where it is larger than 64 MiB or not
/// UTF-8; messages begin with `option`.
std::vector<std::string> read_lines(const std::filesystem::path& file, const std::string& option);

/// Without blanks (space, tab) at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace reelmesh::app
