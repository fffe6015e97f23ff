#include "text/train.hpp"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace reelmesh {
namespace {

constexpr int sentinels = 100;

/// Passes lines to sentencepiece from memory, so that the model contains no file names.
class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  std::size_t at_ = 0;
};

std::vector<std::string> read_lines(std::istream& text, const std::string& name) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  require(!lines.empty(), Status::data, "{}: no lines, expected sentences", name);
  return lines;
}

void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  require(file.good(), Status::cannot_create, "{}: cannot be written", path.string());
}

std::string sentinel(int i) { return fmt::format("<extra_id_{}>", i); }

/// An entry of added_tokens_decoder. For sentinels, spaces around them are stripped.
std::string added_token(std::int64_t id, std::string_view name, bool strips_spaces) {
  return fmt::format(
      "    \"{}\": {{\n"
      "      \"content\": \"{}\",\n"
      "      \"lstrip\": {},\n"
      "      \"normalized\": false,\n"
      "      \"rstrip\": {},\n"
      "      \"single_word\": false,\n"
      "      \"special\": true\n"
      "    }}",
      id, name, strips_spaces, strips_spaces);
}

std::string sentinel_list() {
  std::string text = "  \"additional_special_tokens\": [\n";
  for (int i = 0; i < sentinels; ++i) {
    text += fmt::format("    \"{}\"{}\n", sentinel(i), i + 1 < sentinels ? "," : "");
  }
  return text + "  ],\n";
}

std::string added_tokens(std::int64_t pieces) {
  std::map<std::string, std::int64_t> ids;  // sorted by name, as the reference writes them
  for (int i = 0; i < sentinels; ++i) ids[sentinel(i)] = pieces + sentinels - 1 - i;
  std::string text;
  for (const auto& [name, id] : ids) {
    text += fmt::format("{}  \"{}\": {}", text.empty() ? "{\n" : ",\n", name, id);
  }
  return text + "\n}\n";
}

std::string special_tokens_map() {
  const auto entry = [](std::string_view key, std::string_view name) {
    return fmt::format(
        "  \"{}\": {{\n"
        "    \"content\": \"{}\",\n"
        "    \"lstrip\": false,\n"
        "    \"normalized\": false,\n"
        "    \"rstrip\": false,\n"
        "    \"single_word\": false\n"
        "  }}",
        key, name);
  };
  return "{\n" + sentinel_list() + entry("eos_token", "</s>") + ",\n" +
         entry("pad_token", "<pad>") + ",\n" + entry("unk_token", "<unk>") + "\n}\n";
}

std::string tokenizer_config(std::int64_t pieces) {
  std::string text = "{\n  \"add_prefix_space\": true,\n  \"added_tokens_decoder\": {\n";
  text += added_token(0, "<pad>", false) + ",\n";
  text += added_token(1, "</s>", false) + ",\n";
  text += added_token(2, "<unk>", false);
  for (int i = sentinels - 1; i >= 0; --i) {
    text += ",\n" + added_token(pieces + sentinels - 1 - i, sentinel(i), true);
  }
  text += "\n  },\n" + sentinel_list();
  text +=
      "  \"clean_up_tokenization_spaces\": true,\n"
      "  \"eos_token\": \"</s>\",\n"
      "  \"extra_ids\": 100,\n"
      "  \"extra_special_tokens\": {},\n"
      "  \"legacy\": true,\n"
      "  \"model_max_length\": 226,\n"
      "  \"pad_token\": \"<pad>\",\n"
      "  \"sp_model_kwargs\": {},\n"
      "  \"tokenizer_class\": \"T5Tokenizer\",\n"
      "  \"unk_token\": \"<unk>\"\n"
      "}\n";
  return text;
}

void train(std::istream& text, const std::string& name, const std::filesystem::path& folder,
           int vocab_size) {
  Lines lines(read_lines(text, name));
  const std::unordered_map<std::string, std::string> options = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(vocab_size)},
      {"hard_vocab_limit", "false"},
      {"character_coverage", "1.0"},
      {"normalization_rule_name", "nmt_nfkc"},
      {"pad_id", "0"},
      {"eos_id", "1"},
      {"unk_id", "2"},
      {"bos_id", "-1"},
      {"num_threads", "1"},
      {"minloglevel", "2"},
  };
  std::string model;
  const auto trained = sentencepiece::SentencePieceTrainer::Train(options, &lines, &model);
  require(trained.ok(), Status::data, "{}: a tokenizer of {} pieces cannot be trained on it ({})",
          name, vocab_size, trained.ToString());
  write(folder / "spiece.model", model);
  sentencepiece::SentencePieceProcessor made;
  const auto loaded = made.LoadFromSerializedProto(model);
  expect(loaded.ok(), "sentencepiece: {}", loaded.ToString());
  const std::int64_t pieces = made.GetPieceSize();
  write(folder / "added_tokens.json", added_tokens(pieces));
  write(folder / "special_tokens_map.json", special_tokens_map());
  write(folder / "tokenizer_config.json", tokenizer_config(pieces));
}

}  // namespace

void train_tokenizer(std::string_view text, const std::string& name,
                     const std::filesystem::path& folder, int vocab_size) {
  std::istringstream stream{std::string(text)};
  train(stream, name, folder, vocab_size);
}

void train_tokenizer(const std::filesystem::path& text_file, const std::filesystem::path& folder,
                     int vocab_size) {
  std::ifstream file(text_file);
  std::error_code unreadable;
  require(file.is_open() && !std::filesystem::is_directory(text_file, unreadable), Status::no_input,
          "{}: not found, expected a text to train the tokenizer with", text_file.string());
  train(file, text_file.string(), folder, vocab_size);
}

}  // namespace reelmesh
