#include "text/sentencepiece_vocabulary.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>

#include "base/error.hpp"
#include "text/model_check.hpp"
#include "text/spaces.hpp"
#include "weights/config.hpp"
#include "weights/regular_file.hpp"

namespace reelmesh {
namespace {

constexpr std::int32_t unknown = 2;
constexpr std::string_view unknown_name = "<unk>";
constexpr std::string_view space_mark = "▁";  // U+2581, a space in pieces
constexpr std::int64_t usual_sentinels = 100, max_sentinels = 1 << 16;

std::string read_model(const std::filesystem::path& path) {
  const RegularFile file = RegularFile::open(path);
  const std::string other = file.what_it_is();
  require(other.empty(), Status::data, "{}: not a sentencepiece model{}", path.string(), other);
  require(file.size() > 0 && file.size() <= max_vocabulary_bytes, Status::data,
          "{}: {} bytes, expected a sentencepiece model of 1 byte to 64 MiB", path.string(),
          file.size());
  use_file(path, file.state());
  return file.copy(0, file.size());
}

Config read_tokenizer_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer_config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Config::parse("{}", path);
  return Config::read(path);
}

/// The model with normalizer_spec.add_dummy_prefix = false: a field that occurs again in a protocol
/// buffer is merged into the first.
std::string without_dummy_prefix(std::string model) {
  constexpr char normalizer_spec = 3 << 3 | 2, bytes = 2, add_dummy_prefix = 3 << 3, no = 0;
  return std::move(model) + std::string{normalizer_spec, bytes, add_dummy_prefix, no};
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

std::string with_spaces_for_marks(std::string_view text) {
  std::string result;
  for (std::size_t mark; (mark = text.find(space_mark)) != std::string_view::npos;) {
    result.append(text.substr(0, mark)).append(" ");
    text.remove_prefix(mark + space_mark.size());
  }
  return result.append(text);
}

}  // namespace

SentencepieceVocabulary::SentencepieceVocabulary(const std::filesystem::path& path) {
  const Config config = read_tokenizer_config(path.parent_path());
  sentinels_ =
      static_cast<std::int32_t>(config.get_int("extra_ids", usual_sentinels, 0, max_sentinels));
  legacy_ = config.get_bool("legacy", true);
  const std::vector<std::string> keys = config.keys();
  prefix_space_ = config.get_bool("add_prefix_space",
                                  std::ranges::find(keys, "add_prefix_space") == keys.end());

  auto model = std::make_shared<sentencepiece::SentencePieceProcessor>();
  std::string bytes = read_model(path);
  load(*model, legacy_ ? bytes : without_dummy_prefix(std::move(bytes)), path);
  for (const auto& [id, name] :
       {std::pair{0, std::string_view("<pad>")}, {1, "</s>"}, {unknown, unknown_name}}) {
    require(id < model->GetPieceSize() && model->IdToPiece(id) == name, Status::data,
            "{}: piece {} is \"{}\", expected \"{}\"", path.string(), id,
            id < model->GetPieceSize() ? model->IdToPiece(id) : "missing", name);
    specials_.push_back({std::string(name), id, false});
  }
  for (std::int32_t i = 0; i < sentinels_; ++i) {
    specials_.push_back(
        {fmt::format("<extra_id_{}>", i), model->GetPieceSize() + sentinels_ - 1 - i, true});
  }
  for (std::size_t i = 0; i < specials_.size(); ++i) by_name_.emplace(specials_[i].name, i);
  model_ = std::move(model);
  if (!legacy_) unknown_pieces_ = encode(unknown_name).size();
}

std::int64_t SentencepieceVocabulary::size() const { return model_->GetPieceSize() + sentinels_; }

const SentencepieceVocabulary::Special* SentencepieceVocabulary::special(
    std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &specials_[found->second];
}

/// The special token whose name starts at text[at], or null. All names end at their first '>'.
const SentencepieceVocabulary::Special* SentencepieceVocabulary::special_at(std::string_view text,
                                                                            std::size_t at) const {
  constexpr std::size_t max_name = std::string_view("<extra_id_65535>").size();
  const std::string_view name = text.substr(at, max_name);
  return special(name.substr(0, name.find('>') + 1));  // npos + 1 is 0: no name
}

SentencepieceVocabulary::Pieces SentencepieceVocabulary::encode(std::string_view text) const {
  Pieces pieces;
  const auto status = model_->Encode({text.data(), text.size()}, &pieces);
  require(status.ok(), Status::data, "spiece.model cannot encode a text: sentencepiece: {}",
          status.ToString());
  return pieces;
}

/// A model without a dummy prefix drops spaces at the beginning: after "<unk>" they stay.
void SentencepieceVocabulary::append_pieces(std::string_view text, Pieces& pieces) const {
  Pieces more;
  if (!legacy_ && (text.starts_with(space_mark) || text.starts_with(' '))) {
    more = encode(std::string(unknown_name).append(text));
    if (more.size() >= unknown_pieces_) {
      more.erase(more.begin(), more.begin() + static_cast<std::ptrdiff_t>(unknown_pieces_));
    }
  } else {
    more = encode(text);
  }
  pieces.insert(pieces.end(), more.begin(), more.end());
}

SentencepieceVocabulary::Pieces SentencepieceVocabulary::pieces(std::string_view text) const {
  Pieces pieces;
  std::size_t begin = 0;  // start of the text after the last special token
  bool eat = false;       // whether to strip spaces after that token
  const auto part = [&](std::size_t end, bool eat_at_end) {
    std::string_view between = text.substr(begin, end - begin);
    if (eat) between = without_leading_spaces(between);
    if (eat_at_end) between = without_trailing_spaces(between);
    if (!between.empty()) append_pieces(between, pieces);
  };
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at)) {
    const Special* special = special_at(text, at);
    if (special == nullptr) {
      ++at;
      continue;
    }
    part(at, special->strips_spaces);
    pieces.push_back(special->name);
    at += special->name.size();
    begin = at;
    eat = special->strips_spaces;
  }
  part(text.size(), false);
  return pieces;
}

/// Pieces are looked up by their text, as in the reference. So unknown text whose normalised form
/// equals a special token (＜pad＞) gets the id of that token.
std::vector<std::int32_t> SentencepieceVocabulary::ids(std::string_view text) const {
  Pieces found;
  if (legacy_ || text.empty()) {
    found = pieces(text);
  } else {
    std::string marked = with_spaces_for_marks(text);
    if (prefix_space_) marked.insert(0, space_mark);
    found = pieces(marked);
    if (found.size() > 1 && found[0] == space_mark && special(found[1]) != nullptr) {
      found.erase(found.begin());
    }
  }
  std::vector<std::int32_t> ids;
  for (const std::string& piece : found) {
    const Special* known = special(piece);
    ids.push_back(known != nullptr ? known->id : model_->PieceToId(piece));
    expect(ids.back() >= 0 && ids.back() < size(), "piece \"{}\" has id {} of {}", piece,
           ids.back(), size());
  }
  return ids;
}

std::string SentencepieceVocabulary::words(const std::vector<std::int32_t>& ids) const {
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

}  // namespace reelmesh
