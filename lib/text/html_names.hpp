#pragma once
// Names of characters in HTML, as words "amp;=26 acE;=223e.333 …" that end in spaces. Characters
// are hexadecimal, several of them separated by dots. Source: the HTML standard's named character
// references, by way of Python (tools/reference/make_html_names.py).
#include <string_view>

namespace reelmesh {

/// "amp;=26 amp=26 …": without a semicolon only names that HTML permits so.
extern const std::string_view html_names;
/// "EACUTE;=c9 …": names in capitals that HTML does not know, but ftfy.
extern const std::string_view upper_case_html_names;

}  // namespace reelmesh
