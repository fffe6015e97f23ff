#pragma once
// Parsers of option values. option: where the value was given, for messages: "--sample.steps",
// "job.cfg:12: sample.steps" or "prompts.jsonl:3: steps". All throw Error(usage) with what was
// found and the limits.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sampler/clip_settings.hpp"
#include "tensor/dtype.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// A value as text, before it is parsed.
struct Given {
  std::string name;   ///< "sample.steps"
  std::string value;  ///< from a file: without leading and trailing blanks
  std::string where;  ///< for messages: "--sample.steps" or "job.cfg:12: sample.steps"
};

std::int64_t parse_integer(std::string_view text, const std::string& option, std::int64_t min,
                           std::int64_t max);
/// Decimal numbers; no inf or nan.
double parse_number(std::string_view text, const std::string& option, double min, double max);
/// A time above 0 and up to 1e8 s, such as "10min" → seconds.
double parse_wait(std::string_view text, const std::string& option);
/// yes, true or on → true; no, false or off → false.
bool parse_switch(std::string_view text, const std::string& option);
/// The index of `text` in `choices`.
std::size_t parse_choice(std::string_view text, const std::string& option,
                         std::span<const std::string_view> choices);
/// Type of weights and activations. The message names the one that other programs call bf16, half …
DType parse_dtype(std::string_view text, const std::string& option);
/// A number of ranks; nullopt for "auto".
std::optional<int> parse_ranks(std::string_view text, const std::string& option);

/// "3,7,12-15": numbers of clips of a job that has `count`. → ascending, each once.
std::vector<int> parse_clips(std::string_view text, const std::string& option, int count);

/// "FILE" or "FILE:SCALE". What follows the last colon is a scale if it is a number, or if the file
/// ends in .safetensors.
LoraFile parse_lora(std::string_view text, const std::string& option);

/// The value of a setting of a clip within its limits, on the command line, in job files and in
/// prompt files.
template <class Value>
Value parse_setting(const ClipSetting<Value>& setting, std::string_view text,
                    const std::string& option);
/// The permitted values of a setting: "8 to 16384", "above 0, at most 1".
template <class Value>
std::string setting_limits(const ClipSetting<Value>& setting);

/// A path that is not empty; "~/" at its start is $HOME, since shells leave it in files and after
/// '='. Error(usage) without HOME and for the folder of another user ("~user/"); errors as
/// require_text.
std::filesystem::path parse_path(std::string_view text, const std::string& option);

/// Error(data) unless `text` is UTF-8 without zero bytes.
void require_text(std::string_view text, const std::string& option);
/// The same, and Error(usage) for a prompt of more than 64 KiB; models take some hundred words.
void require_prompt(std::string_view text, const std::string& option);

}  // namespace reelmesh
