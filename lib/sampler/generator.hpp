#pragma once
// PyTorch's CPU random numbers, to the bit: torch.Generator().manual_seed(seed), torch.randn in
// float32.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// A stream of random numbers: MT19937, seeded with the low 32 bits of the seed as PyTorch does.
class TorchGenerator {
 public:
  explicit TorchGenerator(std::uint64_t seed);

  /// Takes a stretch of the array being drawn: the global index of its first value, and the values.
  using Consume = std::function<void(std::int64_t begin, std::span<const float> values)>;

  /// Draws torch.randn of `count` elements and hands it on in order, in stretches of a few KiB that
  /// cover each index once. The generator ends in the state in which PyTorch's ends.
  ///
  /// Rules of PyTorch: fewer than 16 values are drawn singly in double precision, in pairs whose
  /// second value waits for the next such call; otherwise the values come in blocks of 16, and
  /// where count is not a multiple of 16, the last 16 are drawn anew at the end.
  void randn(std::int64_t count, const Consume& consume);

  /// The state as text, from which restored() goes on with the same numbers.
  std::string saved() const;
  /// Throws Error(data) for what saved() did not write.
  static TorchGenerator restored(const std::string& saved);

 private:
  std::uint32_t next();
  double next_uniform_double();           ///< 53 bits
  float next_normal();                    ///< the rule for fewer than 16 values
  void uniform(std::span<float> values);  ///< 24 bits each
  void skip(std::int64_t count);          ///< count < 16
  void refill();
  void temper();  ///< words_ from state_

  static constexpr std::size_t state_size = 624;
  std::array<std::uint32_t, state_size> state_;
  std::array<std::uint32_t, state_size> words_;  ///< tempered output of the present state
  std::size_t used_ = state_size;
  std::optional<double> waiting_;  ///< second half of a pair
};

/// Draws torch.randn of shape `global` and keeps the box at `offset` with `extent`, row-major in
/// `out` (numel(extent) floats). Ranks that hold different boxes and the same seed so hold parts of
/// the same array. An empty box draws, too.
void fill_noise(TorchGenerator& generator, const Shape& global, const Shape& offset,
                const Shape& extent, float* out);

/// The same for a latent [frame, channel, row, column] whose noise is drawn in Open-Sora's order,
/// torch.randn of [copies, channel, frame, row, column]. Keeps the box of the first copy, in the
/// order of the latent; the others are drawn and thrown away.
void fill_noise_by_channel(TorchGenerator& generator, const Shape& global, const Shape& offset,
                           const Shape& extent, std::int64_t copies, float* out);

}  // namespace reelmesh
