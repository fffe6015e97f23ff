#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

/// A record of a CSV file.
struct CsvRecord {
  std::int64_t line = 1;  ///< on which it begins; a field may contain line ends
  std::vector<std::string> fields;
};

/// The records of a CSV file (RFC 4180) whose lines end with LF: fields between commas, in quotes
/// if they contain commas, quotes (doubled) or line ends. As Python's csv module, quotes within
/// other fields, and what follows a closing quote, are text. Empty lines are ignored. source: the
/// file, begins messages. Throws Error(data) naming the line of a quote without an end.
std::vector<CsvRecord> parse_csv(std::string_view text, std::string_view source);

}  // namespace reelmesh
