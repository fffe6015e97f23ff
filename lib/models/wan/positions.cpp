#include "models/wan/positions.hpp"

#include <array>
#include <cmath>

namespace reelmesh {

Tensor wan_sinusoid(double timestep, std::int64_t features, Device host) {
  const std::int64_t half = features / 2;
  Tensor out = Tensor::empty({1, features}, DType::float32, host);
  if (host.only_shapes) return out;
  float* values = out.data<float>();
  for (std::int64_t i = 0; i < half; ++i) {
    const float exponent =
        static_cast<float>(-std::log(10000.0)) * static_cast<float>(i) / static_cast<float>(half);
    const float angle =
        static_cast<float>(timestep) * static_cast<float>(std::exp(static_cast<double>(exponent)));
    values[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    values[half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
  return out;
}

WanRotaryTables wan_rotary_tables(const WanConfig& config, const Box& box, Device host) {
  const std::int64_t n = config.head_channels, space = 2 * (n / 6);
  const std::array<std::int64_t, 3> channels{n - 2 * space, space, space};
  WanRotaryTables tables{Tensor::empty({box.numel(), n}, DType::float32, host),
                         Tensor::empty({box.numel(), n}, DType::float32, host)};
  if (host.only_shapes) return tables;
  std::int64_t token = 0, first = 0;
  const auto write = [&](std::int64_t count, std::int64_t position) {
    for (std::int64_t k = 0; k < count; ++k) {
      const double angle =
          static_cast<double>(position) /
          std::pow(10000.0, static_cast<double>(k / 2 * 2) / static_cast<double>(count));
      tables.cosines.data<float>()[token * n + first + k] = static_cast<float>(std::cos(angle));
      tables.sines.data<float>()[token * n + first + k] = static_cast<float>(std::sin(angle));
    }
    first += count;
  };
  for (std::int64_t t = box.offset[0]; t < box.end(0); ++t) {
    for (std::int64_t y = box.offset[1]; y < box.end(1); ++y) {
      for (std::int64_t x = box.offset[2]; x < box.end(2); ++x, ++token) {
        first = 0;
        write(channels[0], t);
        write(channels[1], y);
        write(channels[2], x);
      }
    }
  }
  return tables;
}

}  // namespace reelmesh
