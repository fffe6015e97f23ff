#pragma once
#include <string>

#include "weights/model_paths.hpp"

namespace reelmesh {

/// A hash, as 16 hexadecimal digits, of what a model's results depend on: its configs and tokenizer
/// files; names, types and shapes of all tensors; and the first and the middle 4 KiB of each
/// tensor's data. It does not depend on the folder or on how tensors are distributed over files.
/// Changes of a few values elsewhere in a large tensor are not noticed. Reads about 8 KiB per
/// tensor. Errors as Checkpoint::open.
std::string model_fingerprint(const ModelPaths& paths);

}  // namespace reelmesh
