#pragma once
#include <string_view>

namespace reelmesh {

/// Checks what the sentencepiece library does not check before it uses it: the tables by which a
/// model normalises text (precompiled_charsmap), which contain positions in themselves. A damaged
/// table would make the library read outside of it. Returns the reason if the file is damaged, or
/// an empty text.
///
/// Format: sentencepiece_model.proto, a protocol buffer. A table is the size of a trie in bytes,
/// the trie (an array of Darts, github.com/s-yata/darts-clone), and texts of up to 1024 bytes that
/// each end in zero.
std::string_view damage_of_model(std::string_view model);

/// The check of one table; an empty one, which changes nothing, is sound.
bool is_sound_table(std::string_view table);

}  // namespace reelmesh
