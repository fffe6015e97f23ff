#include "text/tokenizer_json.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "text/unicode.hpp"
#include "weights/json.hpp"
#include "weights/regular_file.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

constexpr std::size_t max_steps = 8;  // of normalizer and pre_tokenizer; T5's have up to 3

json read_tokenizer_json(const std::filesystem::path& path) {
  constexpr JsonLimits limits{.depth = 32, .values = 4'000'000};  // 256,000 pieces have 770,000
  const RegularFile file = RegularFile::open(path);
  const std::string other = file.what_it_is();
  require(other.empty(), Status::data, "{}: not a JSON file{}", path.string(), other);
  require(file.size() <= max_vocabulary_bytes, Status::data,
          "{}: {} bytes, expected at most 64 MiB", path.string(), file.size());
  use_file(path, file.state());
  return parse_json(file.copy(0, file.size()), path.string(), limits);
}

}  // namespace

/// A value of the file and its place, for messages: "FILE: model.vocab[3]".
class TokenizerJson::Value {
 public:
  Value(const json& value, std::string place, std::string before_key = ".")
      : value_(&value), place_(std::move(place)), before_key_(std::move(before_key)) {}

  const std::string& place() const { return place_; }
  [[noreturn]] void refuse(std::string_view expected) const {
    fail(Status::data, "{}: found {}, expected {}", place_,
         value_->is_structured() ? std::string(value_->type_name()) : printable(value_->dump()),
         expected);
  }

  bool is_null() const { return value_->is_null(); }
  /// A member of an object; null if it is missing.
  Value operator[](const std::string& key) const {
    static const json none;
    if (!value_->is_object()) refuse("an object");
    const auto found = value_->find(key);
    return {found == value_->end() ? none : *found, place_ + before_key_ + key};
  }
  std::vector<Value> elements() const {
    if (!value_->is_array()) refuse("an array");
    std::vector<Value> values;
    for (const json& element : *value_) {
      values.emplace_back(element, fmt::format("{}[{}]", place_, values.size()));
    }
    return values;
  }
  std::string text() const {
    if (!value_->is_string()) refuse("a text");
    return value_->get<std::string>();
  }
  std::wstring characters() const { return decode_utf8(text()); }
  wchar_t character() const {
    const std::wstring all = characters();
    if (all.size() != 1) refuse("one character");
    return all[0];
  }
  bool flag(bool fallback) const {
    if (is_null()) return fallback;
    if (!value_->is_boolean()) refuse("true or false");
    return value_->get<bool>();
  }
  std::int64_t integer(std::int64_t min, std::int64_t max) const {
    const bool fits = value_->is_number_unsigned()
                          ? value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(max)
                          : value_->is_number_integer() && value_->get<std::int64_t>() <= max;
    if (!fits || value_->get<std::int64_t>() < min) {
      refuse(fmt::format("an integer from {} to {}", min, max));
    }
    return value_->get<std::int64_t>();
  }
  double number() const {
    if (!value_->is_number() || !std::isfinite(value_->get<double>())) refuse("a number");
    return value_->get<double>();
  }
  void must_be(const std::string& expected) const {
    if (!value_->is_string() || *value_ != expected) refuse(json(expected).dump());
  }

 private:
  const json* value_;
  std::string place_, before_key_;
};

TokenizerJson::TokenizerJson(const std::filesystem::path& path) {
  const json file = read_tokenizer_json(path);
  const Value root(file, path.string(), ": ");
  // In the order in which a text passes through them, except for the tokens, which need all others.
  read_normalizer(root["normalizer"]);
  read_splitter(root["pre_tokenizer"]);
  read_model(root["model"]);
  check_template(root["post_processor"]);
  read_added_tokens(root["added_tokens"]);
}

void TokenizerJson::read_model(const Value& model) {
  model["type"].must_be("Unigram");
  std::vector<std::wstring> pieces;
  std::vector<double> scores;
  for (const Value& entry : model["vocab"].elements()) {
    const std::vector<Value> piece_and_score = entry.elements();
    if (piece_and_score.size() != 2) entry.refuse("a piece and its score");
    pieces.push_back(piece_and_score[0].characters());
    scores.push_back(piece_and_score[1].number());
  }
  const Value unknown = model["unk_id"];
  if (pieces.empty()) model["vocab"].refuse("pieces");
  const auto id = static_cast<std::int32_t>(unknown.integer(0, std::ssize(pieces) - 1));
  for (std::size_t i = 0; const char* name : {"<pad>", "</s>"}) {
    const std::string found = i < pieces.size() ? encode_utf8(pieces[i]) : "missing";
    require(found == name, Status::data, "{}: piece {} is \"{}\", expected \"{}\"",
            model["vocab"].place(), i, printable(found), name);
    ++i;
  }
  model_.emplace(std::move(pieces), std::move(scores), id, model["byte_fallback"].flag(false));
}

void TokenizerJson::read_normalizer(const Value& normalizer) {
  if (normalizer.is_null()) return;
  if (normalizers_.size() >= max_steps) normalizer.refuse("at most 8 steps");
  const std::string type = normalizer["type"].text();
  if (type == "Sequence") {
    for (const Value& step : normalizer["normalizers"].elements()) read_normalizer(step);
  } else if (type == "Precompiled" && has_table_) {  // texts would grow with each of them
    normalizer.refuse("one Precompiled");
  } else if (type == "Precompiled") {
    has_table_ = true;
    const Value table = normalizer["precompiled_charsmap"];
    const auto bytes = decode_base64(table.text());
    if (!bytes) table.refuse("base64");
    normalizers_.push_back(
        [map = Charsmap(*bytes, table.place())](TextPart& part) { map.apply(part); });
  } else if (type == "Strip") {
    const bool left = normalizer["strip_left"].flag(false);
    const bool right = normalizer["strip_right"].flag(false);
    normalizers_.push_back([=](TextPart& part) { strip_spaces(part, left, right); });
  } else if (type == "Replace") {
    normalizer["pattern"]["Regex"].must_be(" {2,}");
    const wchar_t by = normalizer["content"].character();
    normalizers_.push_back([by](TextPart& part) { replace_spaces(part, by); });
  } else {
    normalizer["type"].refuse("Precompiled, Strip, Replace or Sequence");
  }
}

void TokenizerJson::read_splitter(const Value& splitter) {
  if (splitter.is_null()) return;
  if (splitters_.size() >= max_steps) splitter.refuse("at most 8 steps");
  const std::string type = splitter["type"].text();
  if (type == "Sequence") {
    for (const Value& step : splitter["pretokenizers"].elements()) read_splitter(step);
  } else if (type == "WhitespaceSplit") {
    splitters_.emplace_back(words_of);
  } else if (type == "Metaspace") {
    const wchar_t mark = splitter["replacement"].character();
    const Value scheme = splitter["prepend_scheme"];  // add_prefix_space in older files
    const std::string name = scheme.is_null() ? "always" : scheme.text();
    const Metaspace::Prepend prepend = name == "always"  ? Metaspace::Prepend::always
                                       : name == "first" ? Metaspace::Prepend::first
                                                         : Metaspace::Prepend::never;
    if (prepend == Metaspace::Prepend::never && name != "never") {
      scheme.refuse("always, first or never");
    }
    const Value prefix = splitter["add_prefix_space"];
    if (!prefix.flag(true) && name != "never") prefix.refuse("true, as prepend_scheme says");
    splitters_.emplace_back([space = Metaspace{mark, prepend, splitter["split"].flag(true)}](
                                const TextPart& part) { return space.apply(part); });
    mark_ = mark;
  } else {
    splitter["type"].refuse("WhitespaceSplit, Metaspace or Sequence");
  }
}

void TokenizerJson::check_template(const Value& processor) {
  processor["type"].must_be("TemplateProcessing");
  const std::vector<Value> single = processor["single"].elements();
  if (single.size() != 2) processor["single"].refuse("the text and </s>");
  single[0]["Sequence"]["id"].must_be("A");
  single[1]["SpecialToken"]["id"].must_be("</s>");
  const Value end = processor["special_tokens"]["</s>"]["ids"];
  const std::vector<Value> ids = end.elements();
  if (ids.size() != 1) end.refuse("the id 1");
  ids[0].integer(1, 1);
}

void TokenizerJson::read_added_tokens(const Value& tokens) {
  if (tokens.is_null()) return;
  for (const Value& token : tokens.elements()) {
    AddedToken added{token["content"].characters(), 0, token["single_word"].flag(false),
                     token["lstrip"].flag(false), token["rstrip"].flag(false)};
    if (added.name.empty()) token["content"].refuse("a name");
    // Tokens that the model lacks follow it, in the order of the file.
    added.id = model_->find(added.name);
    if (added.id < 0) {
      added.id = static_cast<std::int32_t>(size());
      more_.push_back(added.name);
    }
    token["id"].integer(added.id, added.id);
    if (token["normalized"].flag(false)) {
      TextPart part{added.name};
      normalize(part);
      added.name = part.text;
      if (added.name.empty()) token["content"].refuse("a name that is not empty when normalised");
      normalized_tokens_.tokens.push_back(std::move(added));
    } else {
      raw_tokens_.tokens.push_back(std::move(added));
    }
  }
  for (AddedTokens* list : {&raw_tokens_, &normalized_tokens_}) {
    std::vector<std::wstring> names;
    for (const AddedToken& token : list->tokens) names.push_back(token.name);
    list->names = PrefixTable(std::move(names));
  }
}

std::int64_t TokenizerJson::size() const { return model_->size() + std::ssize(more_); }

void TokenizerJson::normalize(TextPart& part) const {
  for (const Normalizer& normalizer : normalizers_) normalizer(part);
}

std::vector<TokenizerJson::Section> TokenizerJson::sections(const TextPart& part,
                                                            const AddedTokens& tokens) {
  const std::wstring_view text = part.text;
  std::vector<Section> sections;
  std::size_t begin = 0;  // of what follows the last token
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = nullptr;
    std::size_t length = 1;
    tokens.names.each_prefix(text.substr(at), [&](std::size_t longer, std::int32_t position) {
      token = &tokens.tokens[static_cast<std::size_t>(position)];
      length = longer;
    });
    std::size_t first = at, last = at + length;
    at = last;
    if (token == nullptr) continue;
    if (token->single_word && ((first > 0 && is_word_character(text[first - 1])) ||
                               (last < text.size() && is_word_character(text[last])))) {
      continue;
    }
    while (token->strips_left && first > begin && is_white_space(text[first - 1])) --first;
    while (token->strips_right && last < text.size() && is_white_space(text[last])) ++last;
    if (begin < first) sections.push_back({part.part(begin, first)});
    sections.push_back({{}, token});
    begin = last;
  }
  if (begin < text.size()) sections.push_back({part.part(begin, text.size())});
  return sections;
}

std::vector<std::int32_t> TokenizerJson::ids(std::string_view text) const {
  std::vector<std::int32_t> ids;
  const auto append_words = [&](const TextPart& part) {
    std::vector<TextPart> words{part};
    for (const Splitter& splitter : splitters_) {
      std::vector<TextPart> parts;
      for (const TextPart& word : words) {
        std::ranges::move(splitter(word), std::back_inserter(parts));
      }
      words = std::move(parts);
    }
    for (const TextPart& word : words) model_->append_ids(word.text, ids);
  };
  for (Section& raw : sections({decode_utf8(text), 1}, raw_tokens_)) {
    if (raw.token != nullptr) {
      ids.push_back(raw.token->id);
      continue;
    }
    normalize(raw.part);
    for (const Section& section : sections(raw.part, normalized_tokens_)) {
      if (section.token != nullptr) {
        ids.push_back(section.token->id);
      } else {
        append_words(section.part);
      }
    }
  }
  return ids;
}

std::string TokenizerJson::words(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    if (const int byte = model_->byte_of(id); byte >= 0) {
      text += static_cast<char>(byte);
      continue;
    }
    std::wstring piece = id < model_->size() ? model_->piece(id)
                                             : more_[static_cast<std::size_t>(id - model_->size())];
    if (mark_) std::ranges::replace(piece, *mark_, L' ');
    text += encode_utf8(piece);
  }
  // Bytes may begin or end within a character.
  return encode_utf8(decode_utf8(text.substr(std::min(text.find_first_not_of(' '), text.size()))));
}

}  // namespace reelmesh
