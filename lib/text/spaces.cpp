#include "text/spaces.hpp"

#include <array>

namespace reelmesh {
namespace {

using namespace std::string_view_literals;

constexpr std::array spaces = {
    "\t"sv,     "\n"sv,     "\v"sv,     "\f"sv,     "\r"sv,  // C0 controls
    "\x1c"sv,   "\x1d"sv,   "\x1e"sv,   "\x1f"sv,   " "sv,   // separators of information, space
    "\u0085"sv, "\u00a0"sv, "\u1680"sv,                      // next line, no-break space, Ogham
    "\u2000"sv, "\u2001"sv, "\u2002"sv, "\u2003"sv, "\u2004"sv, "\u2005"sv, "\u2006"sv, "\u2007"sv,
    "\u2008"sv, "\u2009"sv, "\u200a"sv, "\u2028"sv, "\u2029"sv, "\u202f"sv, "\u205f"sv, "\u3000"sv,
};

}  // namespace

std::string_view without_leading_spaces(std::string_view text) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view space : spaces) {
      if (!text.starts_with(space)) continue;
      text.remove_prefix(space.size());
      again = true;
    }
  }
  return text;
}

std::string_view without_trailing_spaces(std::string_view text) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view space : spaces) {
      if (!text.ends_with(space)) continue;
      text.remove_suffix(space.size());
      again = true;
    }
  }
  return text;
}

}  // namespace reelmesh
