#pragma once
#include <string_view>

namespace reelmesh::app {

/// The text of inputs/tokenizer_text.txt, compiled in (tokenizer_text.cpp.in): an installed program
/// makes models without the source folder.
extern const std::string_view tokenizer_text;

}  // namespace reelmesh::app
