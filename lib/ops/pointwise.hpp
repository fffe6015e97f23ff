#pragma once
#include "ops/counter_random.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

// Gradients (tensor/tape.hpp) are recorded by the ops whose comments name them.

/// x += y in place; same shape and type. Gradients: of x and y.
void add(Tensor& x, const Tensor& y);

/// sums[i] += x[i] for n elements in host memory, by the calling thread.
void add_elements(float* sums, const float* x, std::int64_t n);

/// x·y as a new tensor; same shape and type.
Tensor multiply(const Tensor& x, const Tensor& y);

/// out = (x + y)/2, rounded once; same shape and type.
void average(const Tensor& x, const Tensor& y, Tensor& out);

/// Gradient: of an x that every rank has as a whole.
Tensor silu(const Tensor& x);
/// d multiplied by the derivative of silu at x; float32 on the host, of one shape.
Tensor silu_backward(const Tensor& x, const Tensor& d);

/// 0.5·x·(1 + erf(x/√2)), rounded once. Gradient: of x.
Tensor gelu(const Tensor& x);

/// factor·x, rounded once.
Tensor scaled(const Tensor& x, float factor);

/// Which elements of an array [row, column] dropout sets to zero.
struct DropoutMask {
  double probability = 0;
  std::uint64_t key = 0;     ///< random_key()
  std::int64_t columns = 0;  ///< of the whole array

  /// The key with which an element's number is the first.
  std::uint64_t key_at(std::int64_t row, std::int64_t column) const {
    return key + static_cast<std::uint64_t>(row * columns + column) * golden;
  }
};
/// Dropout (Srivastava et al. 2014): elements of x are zero if the upper 32 random bits of their
/// place in the whole array, row · columns + column, are below probability · 2³², rounded down,
/// otherwise divided by 1 − probability: multiplied by the float32 reciprocal and rounded once. x:
/// [..., column], columns of the whole array from first_column on; rows: int32, which row of it
/// each row of x is, on the device of x; empty: from 0 on. The gradient of x is the gradient of the
/// result with the same dropout; it is recorded by the caller.
Tensor dropped(const Tensor& x, const DropoutMask& mask, const Tensor& rows = {},
               std::int64_t first_column = 0);

/// Adds row t of table [token, channel] to every batch item of token t of x [token, batch,
/// channel]. Gradient: of x.
void add_table(Tensor& x, const Tensor& table);

/// Repeats items along the batch axis, as torch.repeat_interleave. x: [token, channel] or [token,
/// item, channel] → out: [token, batch, channel]; batch is a multiple of the number of items.
/// Gradient: of items that are not repeated.
void repeat_for_batch(const Tensor& x, Tensor& out);

/// Concatenates tensors [token, batch, channel] along the batch axis, in the order of `parts`.
Tensor join_batches(std::span<const Tensor> parts);

/// Tokens of a latent box. latents: float32 [frame, channel, row, column], extents divisible by the
/// patch → [token, channel·patch_frames·patch·patch] of `dtype`, tokens frame-major, then row, then
/// column; features in the order channel, frame, row, column. (CogVideoX patch embedding)
struct Patch {
  std::int64_t frames = 1;
  std::int64_t rows = 2;
  std::int64_t columns = 2;
  bool operator==(const Patch&) const = default;
};
Tensor patchify(const Tensor& latents, const Patch& patch, DType dtype);

/// Inverse of patchify for one batch item: tokens [token, batch, channel·frames·rows·columns] →
/// float32 latents of shape `extents`: [frame, channel, row, column]. Gradient: of a batch of one.
Tensor unpatchify(const Tensor& tokens, std::int64_t batch_item, const Patch& patch,
                  const Shape& extents);

/// [frame, row, column, 2·channel] → [2·frame, row, column, channel]: channels 2c and 2c + 1 of
/// frame t become channel c of frames 2t and 2t + 1.
Tensor channels_to_frames(const Tensor& x);

/// [frame, row, column, 3] of a floating type in −1…1 → uint8: round(255·clamp(x/2 + 1/2, 0, 1)),
/// half to even.
Tensor to_pixels(const Tensor& x);

/// Sets `flag`, int32 [1] on the device of x, to 1 if x, of a floating type, has a value that is
/// not finite; otherwise leaves it.
void flag_non_finite(const Tensor& x, Tensor& flag);

/// Looks for NaN and infinite values in several tensors on one device, and reads the answer once.
class FiniteCheck {
 public:
  explicit FiniteCheck(Device device) : flag_(Tensor::zeros({1}, DType::int32, device)) {}
  void add(const Tensor& x) { flag_non_finite(x, flag_); }
  /// Whether all values were finite. Waits for the device. True in a dry run.
  bool finite() const {
    return flag_.device().only_shapes || flag_.on({}).data<std::int32_t>()[0] == 0;
  }

 private:
  Tensor flag_;
};

/// Whether x, of a floating type, has only finite values. Waits for the device.
inline bool all_finite(const Tensor& x) {
  FiniteCheck check(x.device());
  check.add(x);
  return check.finite();
}

}  // namespace reelmesh::ops
