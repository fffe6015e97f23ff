#pragma once
// OUT/kept/step-000100: what was trained after some steps, beside the last result.
#include <filesystem>

#include "job/train_settings.hpp"

namespace reelmesh::train {

/// Keeps the result of a training after so many steps, a file in output/lora or output/transformer
/// and what is beside it, as hard links where the file system has them; then removes those that the
/// rule does not keep. A process that is killed leaves whole files. Error(io).
void keep_result(const std::filesystem::path& output, const std::filesystem::path& result,
                 std::int64_t step, const KeepRule& rule);

}  // namespace reelmesh::train
