#pragma once
// Checks that the parts of a checkpoint belong together.
#include <fmt/format.h>

#include <cstdint>

#include "base/error.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// Error(data) unless a value of a part is the one that the transformer expects. format: of what
/// was found, "the autoencoder has {} latent channels".
inline void require_as_in_transformer(const ModelPaths& paths,
                                      fmt::format_string<std::int64_t> format, std::int64_t found,
                                      std::int64_t expected) {
  if (found == expected) return;
  fail(Status::data, "{}: {}, expected {} as in the transformer", paths.root.string(),
       fmt::format(format, std::int64_t{found}), expected);
}

}  // namespace reelmesh
