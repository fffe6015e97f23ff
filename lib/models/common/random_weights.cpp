#include "models/common/random_weights.hpp"

#include <algorithm>
#include <array>

#include "ops/counter_random.hpp"
#include "ops/parallel.hpp"
#include "tensor/convert.hpp"

namespace reelmesh {
namespace {

using ops::random_bits;
using ops::random_key;

constexpr std::int64_t piece = 16384;  // values that a thread makes at a time

REELMESH_CLONES void make(std::uint64_t state, Spread spread, float* out, std::int64_t count) {
  // The sum of four uniform 16-bit numbers has mean 2·65535 and a standard deviation near 65536/√3.
  constexpr std::uint64_t low = 0xffffU;
  const float factor = spread.deviation * (1.7320508F / 65536.0F);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t r = random_bits(state, static_cast<std::uint64_t>(i));
    const std::uint64_t sum = (r & low) + (r >> 16 & low) + (r >> 32 & low) + (r >> 48);
    out[i] = spread.mean + factor * static_cast<float>(static_cast<std::int32_t>(sum) - 131070);
  }
}

}  // namespace

void fill_random(Tensor& out, std::string_view name, std::uint64_t seed, Spread spread) {
  const std::uint64_t key = random_key(name, seed);
  const std::int64_t size = size_of(out.dtype());
  ops::parallel_for((out.numel() + piece - 1) / piece, 1, [&](std::int64_t p) {
    std::array<float, piece> numbers;
    const std::int64_t first = p * piece, count = std::min(piece, out.numel() - first);
    make(key + static_cast<std::uint64_t>(first) * ops::golden, spread, numbers.data(), count);
    convert(numbers.data(), DType::float32, static_cast<std::byte*>(out.raw()) + first * size,
            out.dtype(), count);
  });
}

void fill_uniform(Tensor& out, std::string_view name, std::uint64_t seed, float limit) {
  const std::uint64_t key = random_key(name, seed);
  const std::span<float> values = out.span<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = random_bits(key, i) >> 40;  // 24
    values[i] = limit * (static_cast<float>(bits) * 0x1p-23F - 1.0F);
  }
}

}  // namespace reelmesh
