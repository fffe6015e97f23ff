#include "text/tokenizer.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "text/model_check.hpp"
#include "text/spaces.hpp"
#include "weights/config.hpp"
#include "weights/regular_file.hpp"

namespace reelmesh {
namespace {

constexpr std::int32_t pad = 0;
constexpr std::int32_t end_of_text = 1;
constexpr std::int32_t unknown = 2;
constexpr std::int64_t usual_sentinels = 100, max_sentinels = 1 << 16;
constexpr std::int64_t largest_model = std::int64_t{64} << 20;  // bytes; T5's has 0.8 MB

std::string read_model(const std::filesystem::path& path) {
  std::error_code error;
  require(std::filesystem::exists(path, error), Status::no_input,
          "{}: not found, expected a sentencepiece model", path.string());
  const RegularFile file = RegularFile::open(path);
  require(file.size() > 0 && file.size() <= largest_model, Status::data,
          "{}: {} bytes, expected a sentencepiece model of 1 byte to 64 MiB", path.string(),
          file.size());
  use_file(path, file.state());
  return file.copy(0, file.size());
}

std::int32_t sentinel_count(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer_config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return usual_sentinels;
  return static_cast<std::int32_t>(
      Config::read(path).get_int("extra_ids", usual_sentinels, 0, max_sentinels));
}

void load(sentencepiece::SentencePieceProcessor& model, const std::string& bytes,
          const std::filesystem::path& path) {
  std::string damage(damage_of_model(bytes));
  try {
    if (damage.empty()) {
      const auto loaded = model.LoadFromSerializedProto(bytes);
      if (!loaded.ok()) damage = loaded.ToString();
    }
  } catch (const std::exception& error) {  // of the library's trie, for a piece such as "\0"
    damage = error.what();
  }
  require(damage.empty(), Status::data, "{}: damaged, expected a sentencepiece model ({})",
          path.string(), damage);
}

}  // namespace

Tokenizer Tokenizer::open(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "spiece.model";
  auto model = std::make_shared<sentencepiece::SentencePieceProcessor>();
  load(*model, read_model(path), path);

  Tokenizer tokenizer;
  for (const auto& [id, name] :
       {std::pair{pad, "<pad>"}, {end_of_text, "</s>"}, {unknown, "<unk>"}}) {
    require(id < model->GetPieceSize() && model->IdToPiece(id) == name, Status::data,
            "{}: piece {} is \"{}\", expected \"{}\"", path.string(), id,
            id < model->GetPieceSize() ? model->IdToPiece(id) : "missing", name);
    tokenizer.specials_.push_back({name, id, false});
  }
  tokenizer.sentinels_ = sentinel_count(folder);
  for (std::int32_t i = 0; i < tokenizer.sentinels_; ++i) {
    tokenizer.specials_.push_back({fmt::format("<extra_id_{}>", i),
                                   model->GetPieceSize() + tokenizer.sentinels_ - 1 - i, true});
  }
  for (std::size_t i = 0; i < tokenizer.specials_.size(); ++i) {
    tokenizer.by_name_.emplace(tokenizer.specials_[i].name, i);
  }
  tokenizer.model_ = std::move(model);
  return tokenizer;
}

std::int64_t Tokenizer::vocabulary_size() const { return model_->GetPieceSize() + sentinels_; }

const Tokenizer::Special* Tokenizer::special(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &specials_[found->second];
}

/// The special token whose name starts at text[at], or null. All names end at their first '>'.
const Tokenizer::Special* Tokenizer::special_at(std::string_view text, std::size_t at) const {
  constexpr std::size_t max_name = std::string_view("<extra_id_65535>").size();
  const std::string_view name = text.substr(at, max_name);
  return special(name.substr(0, name.find('>') + 1));  // npos + 1 is 0: no name
}

/// Pieces are looked up by their text, as in the reference. So unknown text whose normalised form
/// equals a special token (＜pad＞) gets the id of that token.
void Tokenizer::append_pieces(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::vector<std::string> pieces;
  const auto status = model_->Encode({text.data(), text.size()}, &pieces);
  require(status.ok(), Status::data, "spiece.model cannot encode a text: sentencepiece: {}",
          status.ToString());
  for (const std::string& piece : pieces) {
    const Special* known = special(piece);
    const std::int32_t id = known != nullptr ? known->id : model_->PieceToId(piece);
    expect(id >= 0 && id < vocabulary_size(), "piece \"{}\" has id {} of {}", piece, id,
           vocabulary_size());
    ids.push_back(id);
  }
}

std::vector<std::int32_t> Tokenizer::text_ids(std::string_view text) const {
  std::vector<std::int32_t> ids;
  std::size_t begin = 0;  // start of the text after the last special token
  bool eat = false;       // whether to strip spaces after that token
  const auto part = [&](std::size_t end, bool eat_at_end) {
    std::string_view between = text.substr(begin, end - begin);
    if (eat) between = without_leading_spaces(between);
    if (eat_at_end) between = without_trailing_spaces(between);
    if (!between.empty()) append_pieces(between, ids);
  };
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at)) {
    const Special* special = special_at(text, at);
    if (special == nullptr) {
      ++at;
      continue;
    }
    part(at, special->strips_spaces);
    ids.push_back(special->id);
    at += special->name.size();
    begin = at;
    eat = special->strips_spaces;
  }
  part(text.size(), false);
  return ids;
}

/// Ids as text, as the reference decodes them: special tokens by name, spaces around sentinels.
std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  std::string stretch;     // text since the last sentinel
  std::vector<int> plain;  // ids since the last special token
  bool after_special = false;
  const auto end_plain = [&] {
    std::string words;
    const auto status = model_->Decode(plain, &words);
    require(status.ok(), Status::data, "spiece.model cannot decode tokens: sentencepiece: {}",
            status.ToString());
    stretch += words;
    plain.clear();
  };
  const auto end_stretch = [&] {
    end_plain();
    const std::string_view words = without_leading_spaces(without_trailing_spaces(stretch));
    if (!words.empty()) text.append(text.empty() ? "" : " ").append(words);
    stretch.clear();
    after_special = false;
  };
  for (const std::int32_t id : ids) {
    if (id >= model_->GetPieceSize()) {
      end_stretch();
      text.append(text.empty() ? "" : " ")
          .append(
              specials_[static_cast<std::size_t>(3 + model_->GetPieceSize() + sentinels_ - 1 - id)]
                  .name);
    } else if (id <= unknown) {
      if (!after_special) stretch += ' ';
      end_plain();
      stretch += specials_[static_cast<std::size_t>(id)].name;
      after_special = true;
    } else {
      plain.push_back(id);
      after_special = false;
    }
  }
  end_stretch();
  return text;
}

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
  const auto close = [](std::vector<std::int32_t>& ids) {
    if (ids.empty() || ids.back() != end_of_text) ids.push_back(end_of_text);
  };
  Encoded encoded;
  encoded.ids = text_ids(text);
  if (encoded.ids.size() + 1 > length) {
    std::vector<std::int32_t> whole = encoded.ids;
    close(whole);
    if (whole.size() > length) {
      encoded.cut =
          decode({whole.begin() + static_cast<std::ptrdiff_t>(length) - 1, whole.end() - 1});
    }
    encoded.ids.resize(length - 1);
  }
  close(encoded.ids);
  encoded.kept = static_cast<std::int64_t>(encoded.ids.size());
  encoded.ids.resize(length, pad);
  return encoded;
}

}  // namespace reelmesh
