#include "text/graphemes.hpp"

#include <utf8proc.h>

namespace reelmesh {

std::size_t grapheme_length(std::wstring_view text) {
  std::size_t length = 1;
  utf8proc_int32_t state = 0;
  while (length < text.size() &&
         !utf8proc_grapheme_break_stateful(text[length - 1], text[length], &state)) {
    ++length;
  }
  return length;
}

}  // namespace reelmesh
