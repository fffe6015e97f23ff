#pragma once
// Options by the names that other programs have for them, for messages about unknown names.
#include <span>
#include <string>
#include <string_view>

namespace reelmesh {

/// An option of diffusers' scripts, xDiT, Open-Sora, finetrainers or Wan.
struct OtherName {
  std::string_view name;              ///< in lower case, with '-' for '_'
  std::string_view option;            ///< "section.key" here; empty: there is none
  std::string_view remark;            ///< if there is none: why, or what to do
  std::string_view of_training = {};  ///< the option of a training, if it is another one
};
std::span<const OtherName> other_names();

/// The end of a message about an unknown option, key or field: the one of `names` that was meant,
/// by its name in other programs or the nearest; or that other jobs have it; or that there is none.
/// Empty if nothing is known. before: what options are written after ("--").
/// "num_inference_steps" → "; did you mean --sample.steps?"
std::string hint(std::string_view given, std::span<const std::string> names,
                 std::string_view before = "");
/// Of an unknown section of a job file likewise: "; did you mean [sample]?".
std::string hint_of_section(std::string_view given, std::span<const std::string> sections);
/// Of an unknown field of a line of a prompt file likewise. options: of these fields, as many.
std::string hint_of_field(std::string_view given, std::span<const std::string> fields,
                          std::span<const std::string> options);

}  // namespace reelmesh
