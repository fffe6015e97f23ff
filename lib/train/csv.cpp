#include "train/csv.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace reelmesh {
namespace {

class CsvParser {
 public:
  CsvParser(std::string_view text, std::string_view source) : rest_(text), source_(source) {}

  std::vector<CsvRecord> records() {
    std::vector<CsvRecord> all;
    while (!rest_.empty()) {
      if (end_line()) continue;
      all.push_back({line_, {}});
      do {
        std::string& field = all.back().fields.emplace_back();
        if (rest_.starts_with('"')) field = quoted();
        field += plain();
      } while (take(","));
      end_line();
    }
    return all;
  }

 private:
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  bool end_line() {
    if (!take("\n")) return false;
    ++line_;
    return true;
  }

  std::string plain() {
    const std::string_view field = rest_.substr(0, rest_.find_first_of(",\n"));
    rest_.remove_prefix(field.size());
    return std::string(field);
  }

  std::string quoted() {
    const std::int64_t begin = line_;
    std::string field;
    rest_.remove_prefix(1);
    for (;;) {
      const std::size_t quote = rest_.find('"');
      if (quote == rest_.npos) {
        line_ = begin;
        refuse("a quote without an end", "a closing quote");
      }
      field += rest_.substr(0, quote);
      line_ += std::ranges::count(rest_.substr(0, quote), '\n');
      rest_.remove_prefix(quote + 1);
      if (!take("\"")) return field;
      field += '"';
    }
  }

  [[noreturn]] void refuse(std::string_view found, std::string_view expected) const {
    fail(Status::data, "{}:{}: found {}, expected {}", source_, line_, found, expected);
  }

  std::string_view rest_, source_;
  std::int64_t line_ = 1;
};

}  // namespace

std::vector<CsvRecord> parse_csv(std::string_view text, std::string_view source) {
  return CsvParser(text, source).records();
}

}  // namespace reelmesh
