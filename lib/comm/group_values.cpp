#include "comm/group_values.hpp"

#include <cstdint>

namespace reelmesh::comm {
namespace {

// Texts are sent as two blocks: their lengths, and their characters.
std::vector<std::int64_t> lengths_of(const std::vector<std::string>& texts) {
  std::vector<std::int64_t> lengths;
  for (const std::string& text : texts) lengths.push_back(std::ssize(text));
  return lengths;
}

std::string characters_of(const std::vector<std::string>& texts) {
  std::string characters;
  for (const std::string& text : texts) characters += text;
  return characters;
}

std::vector<std::string> texts_of(const std::vector<std::int64_t>& lengths,
                                  const std::string& characters, std::size_t rank) {
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (const std::int64_t signed_length : lengths) {
    const auto length = static_cast<std::size_t>(signed_length);
    expect(length <= characters.size() - at, "rank {} sent texts of more than {} characters", rank,
           characters.size());
    texts.push_back(characters.substr(at, length));
    at += length;
  }
  expect(at == characters.size(), "rank {} sent {} characters, expected {}", rank,
         characters.size(), at);
  return texts;
}

std::vector<std::vector<std::string>> texts_of_each(
    const std::vector<std::vector<std::int64_t>>& lengths,
    const std::vector<std::string>& characters) {
  std::vector<std::vector<std::string>> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    texts.push_back(texts_of(lengths[r], characters[r], r));
  }
  return texts;
}

}  // namespace

std::vector<std::string> broadcast_texts(const Group& group, const std::vector<std::string>& texts,
                                         int root) {
  const bool sends = group.rank() == root;
  const std::vector<std::int64_t> lengths = broadcast_values(group, lengths_of(texts), root);
  return texts_of(lengths, group.broadcast(sends ? characters_of(texts) : "", root),
                  static_cast<std::size_t>(root));
}

std::vector<std::vector<std::string>> all_gather_texts(const Group& group,
                                                       const std::vector<std::string>& texts) {
  const auto lengths = all_gather_values(group, lengths_of(texts));
  return texts_of_each(lengths, group.all_gather(characters_of(texts)));
}

std::vector<std::vector<std::string>> gather_texts(const Group& group,
                                                   const std::vector<std::string>& texts,
                                                   int root) {
  const auto lengths = gather_values(group, lengths_of(texts), root);
  return texts_of_each(lengths, group.gather(characters_of(texts), root));
}

}  // namespace reelmesh::comm
