#pragma once
// Values as users write them. `option` says where a value stands, for messages: "--sample.steps",
// "job.cfg:12: sample.steps" or "prompts.jsonl:3: steps". All throw Error(usage) that states what
// was found and the limits.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace reelmesh::app {

std::int64_t parse_integer(std::string_view text, const std::string& option, std::int64_t min,
                           std::int64_t max);
/// Decimal numbers; no inf or nan.
double parse_number(std::string_view text, const std::string& option, double min, double max);
std::uint64_t parse_seed(std::string_view text, const std::string& option);
/// yes, true, on or no, false, off.
bool parse_switch(std::string_view text, const std::string& option);
/// The index of `text` in `choices`.
std::size_t parse_choice(std::string_view text, const std::string& option,
                         std::span<const std::string_view> choices);
/// A number of ranks, or nothing for "auto".
std::optional<int> parse_ranks(std::string_view text, const std::string& option);

// The values of a clip: the same on the command line, in the job file and in a prompts file.
std::int64_t parse_pixels(std::string_view text, const std::string& option);
std::int64_t parse_frames(std::string_view text, const std::string& option);
double parse_fps(std::string_view text, const std::string& option);
int parse_steps(std::string_view text, const std::string& option);
double parse_guidance(std::string_view text, const std::string& option);

/// Text from anywhere: Error(data) unless it is UTF-8 without zero bytes.
void require_text(std::string_view text, const std::string& option);

}  // namespace reelmesh::app
