#pragma once
// Tables of characters, as words that end in spaces. Characters are hexadecimal, several of them
// separated by dots. Sources: the HTML standard's named character references, and the Unicode
// Character Database, by way of Python (tools/reference/make_text_tables.py).
#include <string_view>

namespace reelmesh {

/// "amp;=26 amp=26 …": without a semicolon only names that HTML permits so.
extern const std::string_view html_names;
/// "EACUTE;=c9 …": names in capitals that HTML does not know, but ftfy.
extern const std::string_view upper_case_html_names;
/// "c9=45.301 … 340=300! …": of one step, without Hangul. NFC does not compose those with "!".
extern const std::string_view canonical_decompositions;
/// "300-314:230 …": canonical combining classes other than 0.
extern const std::string_view combining_classes;
/// "ff01=21 …": what NFKC makes of full-width and half-width forms, and of U+3000.
extern const std::string_view width_forms;

}  // namespace reelmesh
