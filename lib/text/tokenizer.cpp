#include "text/tokenizer.hpp"

#include "base/error.hpp"
#include "text/sentencepiece_vocabulary.hpp"
#include "text/tokenizer_json.hpp"
#include "weights/model_paths.hpp"
#include "weights/tokenizer_file.hpp"

namespace reelmesh {
namespace {

constexpr std::int32_t pad = 0;
constexpr std::int32_t end_of_text = 1;

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Vocabulary> vocabulary, std::int64_t ids)
    : vocabulary_(std::move(vocabulary)), ids_(ids) {}

Tokenizer Tokenizer::without_vocabulary(std::int64_t ids) { return {nullptr, ids}; }

Tokenizer Tokenizer::open(const std::filesystem::path& folder, const std::string& class_name) {
  const std::filesystem::path file = tokenizer_file(folder, class_name);
  std::error_code error;
  require(std::filesystem::exists(file, error), Status::no_input,
          "{}: found neither spiece.model nor tokenizer.json, expected one of them "
          "(model.tokenizer gives another folder)",
          folder.string());
  std::shared_ptr<const Vocabulary> vocabulary;
  if (file.filename() == "tokenizer.json") {
    vocabulary = std::make_shared<TokenizerJson>(file);
  } else {
    vocabulary = std::make_shared<SentencepieceVocabulary>(file);
  }
  const std::int64_t ids = vocabulary->size();
  return {std::move(vocabulary), ids};
}

Tokenizer Tokenizer::open(const ModelPaths& paths) {
  return open(paths.tokenizer, reelmesh::class_in_index(paths, "tokenizer"));
}

std::int64_t Tokenizer::vocabulary_size() const { return ids_; }

Encoded Tokenizer::accept(std::vector<std::int32_t> ids, std::int64_t max_length,
                          const std::string& where) const {
  const auto length = static_cast<std::size_t>(max_length);
  require(ids.size() <= length, Status::usage, "{}: found {} ids, expected at most {}", where,
          ids.size(), length);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    require(ids[i] >= 0 && ids[i] < vocabulary_size(), Status::usage,
            "{}: id {} (counted from 0) is {}, expected 0 to {}", where, i, ids[i],
            vocabulary_size() - 1);
  }
  Encoded encoded;
  encoded.ids = std::move(ids);
  while (!encoded.ids.empty() && encoded.ids.back() == pad) encoded.ids.pop_back();
  require(!encoded.ids.empty() && encoded.ids.back() == end_of_text, Status::usage,
          "{}: found {} as last id, expected {} (</s>), followed by nothing but {} (<pad>)", where,
          encoded.ids.empty() ? pad : encoded.ids.back(), end_of_text, pad);
  encoded.kept = static_cast<std::int64_t>(encoded.ids.size());
  encoded.ids.resize(length, pad);
  return encoded;
}

Encoded Tokenizer::encode(std::string_view text, std::int64_t max_length) const {
  expect(max_length >= 1, "{} token ids, expected at least 1", max_length);
  const auto length = static_cast<std::size_t>(max_length);
  if (vocabulary_ == nullptr) {
    return {std::vector<std::int32_t>(length, end_of_text), max_length, ""};
  }
  const auto close = [&](std::vector<std::int32_t>& ids) {
    if (ids.empty() || ids.back() != end_of_text || vocabulary_->ends_twice()) {
      ids.push_back(end_of_text);
    }
  };
  Encoded encoded;
  encoded.ids = vocabulary_->ids(text);
  if (encoded.ids.size() + 1 > length) {
    std::vector<std::int32_t> whole = encoded.ids;
    close(whole);
    if (whole.size() > length) {
      encoded.cut = vocabulary_->words(
          {whole.begin() + static_cast<std::ptrdiff_t>(length) - 1, whole.end() - 1});
    }
    encoded.ids.resize(length - 1);
  }
  close(encoded.ids);
  encoded.kept = static_cast<std::int64_t>(encoded.ids.size());
  encoded.ids.resize(length, pad);
  return encoded;
}

}  // namespace reelmesh
