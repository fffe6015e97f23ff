#pragma once
// PyTorch's CPU random numbers, to the bit: torch.Generator().manual_seed(seed), torch.randn and
// torch.rand in float32, torch.randint, torch.randperm.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// The largest count of TorchGenerator::randint: PyTorch 2.9 and later draw larger ones
/// differently.
constexpr std::int64_t max_randint = std::int64_t{1} << 28;

/// A stream of random numbers: MT19937, seeded with the low 32 bits of the seed as PyTorch does.
class TorchGenerator {
 public:
  explicit TorchGenerator(std::uint64_t seed);

  /// Receives a chunk of the array being drawn; begin: global index of its first value.
  using Consume = std::function<void(std::int64_t begin, std::span<const float> values)>;

  /// Draws torch.randn of `count` elements and passes them to `consume` in order, in chunks of a
  /// few KiB that cover each index once. The generator's final state is that of PyTorch's.
  ///
  /// PyTorch's rules: fewer than 16 values are drawn one by one in double precision, in pairs; an
  /// unused second value of a pair is kept for the next such call. Otherwise values are drawn in
  /// blocks of 16; if count is not a multiple of 16, the last 16 are then drawn again.
  void randn(std::int64_t count, const Consume& consume);

  /// torch.randint(0, count, (1,)). count: 1 to max_randint.
  std::int64_t randint(std::int64_t count);
  /// torch.rand(1): in [0, 1), 24 random bits.
  float rand();
  /// torch.randperm(count): an order of 0 … count - 1. count: at most max_randint.
  std::vector<std::int64_t> randperm(std::int64_t count);

  /// The state as text; restored() continues with the same random numbers.
  std::string saved() const;
  /// Throws Error(data) if the text is not a valid state as written by saved().
  static TorchGenerator restored(const std::string& saved);

 private:
  std::uint32_t next();
  double next_uniform_double();           ///< in [0, 1), 53 random bits
  float next_normal();                    ///< the rule for fewer than 16 values
  void uniform(std::span<float> values);  ///< in [0, 1), 24 random bits each
  void skip(std::int64_t count);          ///< count < 16
  void refill();
  void temper();  ///< words_ from state_

  static constexpr std::size_t state_size = 624;
  std::array<std::uint32_t, state_size> state_;
  std::array<std::uint32_t, state_size> words_;  ///< tempered output of the current state
  std::size_t used_ = state_size;
  std::optional<double> waiting_;  ///< unused second value of a pair
};

/// Draws torch.randn of shape `global` and keeps the box at `offset` with `extent`, row-major in
/// `out` (numel(extent) floats). Ranks with different boxes and the same seed get parts of the same
/// array. An empty box advances the generator, too.
void fill_noise(TorchGenerator& generator, const Shape& global, const Shape& offset,
                const Shape& extent, float* out);

/// The same for latents [frame, channel, row, column] with noise drawn in Open-Sora's order,
/// torch.randn of [copies, channel, frame, row, column]. Keeps the box of the first copy, in the
/// order of the latents; the other copies are drawn and discarded.
void fill_noise_by_channel(TorchGenerator& generator, const Shape& global, const Shape& offset,
                           const Shape& extent, std::int64_t copies, float* out);

}  // namespace reelmesh
