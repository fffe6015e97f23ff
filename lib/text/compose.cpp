#include "text/compose.hpp"

#include <utf8proc.h>

#include <vector>

#include "base/error.hpp"
#include "text/unicode.hpp"

namespace reelmesh {
namespace {

std::wstring normalized(std::wstring_view text, int options) {
  const auto all = static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const std::string bytes = encode_utf8(text);
  std::vector<utf8proc_int32_t> characters;
  const auto decompose = [&] {
    const utf8proc_ssize_t count =
        utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()),
                           std::ssize(bytes), characters.data(), std::ssize(characters), all);
    expect(count >= 0, "utf8proc: {}", utf8proc_errmsg(count));
    return count;
  };
  characters.resize(static_cast<std::size_t>(decompose()));
  decompose();
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(characters.data(), std::ssize(characters), all);
  expect(count >= 0, "utf8proc: {}", utf8proc_errmsg(count));
  return {characters.begin(), characters.begin() + count};
}

}  // namespace

std::wstring composed(std::wstring_view text) { return normalized(text, 0); }

std::wstring composed_without_variants(std::wstring_view text) {
  return normalized(text, UTF8PROC_COMPAT);
}

}  // namespace reelmesh
