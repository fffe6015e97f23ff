#pragma once
// Index maths and scalar functions shared by CPU ops and CUDA kernels.
#include <cmath>
#include <cstdint>

#include "base/host_device.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// Element order of patchify and unpatchify: maps (token, feature) to an offset in the latents
/// [frame, channel, row, column].
struct PatchOrder {
  std::int64_t channels = 0, rows = 0, columns = 0;                  ///< of the latents
  std::int64_t patch_frames = 1, patch_rows = 1, patch_columns = 1;  ///< of a patch

  REELMESH_HOST_DEVICE std::int64_t features() const {
    return channels * patch_frames * patch_rows * patch_columns;
  }
  /// Tokens frame-major, then row, then column; features in the order channel, frame, row, column.
  REELMESH_HOST_DEVICE std::int64_t element(std::int64_t token, std::int64_t feature) const {
    const std::int64_t grid_columns = columns / patch_columns, grid_rows = rows / patch_rows;
    const std::int64_t px = feature % patch_columns, py = feature / patch_columns % patch_rows;
    const std::int64_t plane = feature / patch_columns / patch_rows;
    const std::int64_t pt = plane % patch_frames, c = plane / patch_frames;
    const std::int64_t x = token % grid_columns, y = token / grid_columns % grid_rows;
    const std::int64_t t = token / grid_columns / grid_rows;
    return (((t * patch_frames + pt) * channels + c) * rows + y * patch_rows + py) * columns +
           x * patch_columns + px;
  }
};

/// −1…1 → 0…255: round(255·clamp(x/2 + 1/2, 0, 1)), half to even; NaN → 0, so that the cast is
/// defined.
REELMESH_HOST_DEVICE inline std::uint8_t to_pixel(float x) {
  const float half = x * 0.5F + 0.5F;
  const float unit = half > 0.0F ? (half < 1.0F ? half : 1.0F) : 0.0F;
  return static_cast<std::uint8_t>(std::nearbyint(unit * 255.0F));
}

/// Rotary embedding of two adjacent channels (Su et al. 2021); c, s: cosines, sines of the two.
REELMESH_HOST_DEVICE inline void rotate_pair(float& even, float& odd, const float* c,
                                             const float* s) {
  const float x = even, y = odd;
  even = x * c[0] - y * s[0];
  odd = y * c[1] + x * s[1];
}

/// The adjoint of rotate_pair(): gradients of the results → gradients of the arguments.
REELMESH_HOST_DEVICE inline void rotate_pair_backward(float& even, float& odd, const float* c,
                                                      const float* s) {
  const float x = even, y = odd;
  even = x * c[0] + y * s[1];
  odd = y * c[1] - x * s[0];
}

}  // namespace reelmesh::ops
