#include "models/opensora/positions.hpp"

#include <cmath>

namespace reelmesh {
namespace {

// Writes n channels of one position: sines, then cosines, of n/2 frequencies. Angles are computed
// in the type R, as in the reference of that release.
template <class R>
void write_position(R position, std::int64_t n, float* into) {
  const std::int64_t half = n / 2;
  for (std::int64_t k = 0; k < half; ++k) {
    const R power = static_cast<R>(k) / static_cast<R>(half);
    const R frequency =
        static_cast<R>(1) / static_cast<R>(std::pow(10000.0, static_cast<double>(power)));
    const auto angle = static_cast<double>(position * frequency);
    into[k] = static_cast<float>(std::sin(angle));
    into[half + k] = static_cast<float>(std::cos(angle));
  }
}

// Scaled positions of the rows and columns of a frame.
struct Positions {
  std::vector<double> rows, columns;
};

Positions axis_positions(const STDiTConfig& config, const Shape& grid, std::int64_t height,
                         std::int64_t width) {
  Positions positions;
  const auto fill = [&](std::vector<double>& into, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (config.kind == STDiTConfig::Kind::v1) {
        into.push_back(static_cast<float>(i) / static_cast<float>(config.space_scale));
        continue;
      }
      const double scale = std::sqrt(static_cast<double>(height * width)) /
                           static_cast<double>(config.input_sq_size);
      const double base = std::nearbyint(std::sqrt(static_cast<double>(grid[1] * grid[2])));
      into.push_back((static_cast<float>(i) / static_cast<float>(scale)) *
                     static_cast<float>(base / static_cast<double>(count)));
    }
  };
  fill(positions.rows, grid[1]);
  fill(positions.columns, grid[2]);
  return positions;
}

}  // namespace

Tensor number_embedding(double number, Device host) {
  constexpr std::int64_t half = number_channels / 2;
  Tensor out = Tensor::empty({1, 2 * half}, DType::float32, host);
  if (host.only_shapes) return out;
  for (std::int64_t k = 0; k < half; ++k) {
    const float exponent =
        static_cast<float>(-std::log(10000.0)) * static_cast<float>(k) / static_cast<float>(half);
    const float angle =
        static_cast<float>(number) * static_cast<float>(std::exp(static_cast<double>(exponent)));
    out.data<float>()[k] = static_cast<float>(std::cos(static_cast<double>(angle)));
    out.data<float>()[half + k] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
  return out;
}

Tensor spatial_positions(const STDiTConfig& config, const Shape& grid, const Box& box,
                         std::int64_t height, std::int64_t width, Device host) {
  const std::int64_t half = config.hidden / 2;
  const Positions positions = axis_positions(config, grid, height, width);
  const auto write = [&](double position, float* into) {
    if (config.kind == STDiTConfig::Kind::v1) {
      write_position<double>(position, half, into);
    } else {
      write_position<float>(static_cast<float>(position), half, into);
    }
  };
  Tensor out = Tensor::empty({box.extent[1], box.extent[2], config.hidden}, DType::float32, host);
  if (host.only_shapes) return out;
  float* into = out.data<float>();
  for (std::int64_t y = box.offset[1]; y < box.end(1); ++y) {
    for (std::int64_t x = box.offset[2]; x < box.end(2); ++x, into += config.hidden) {
      write(positions.columns[static_cast<std::size_t>(x)], into);
      write(positions.rows[static_cast<std::size_t>(y)], into + half);
    }
  }
  return out;
}

Tensor time_positions(const STDiTConfig& config, std::int64_t frames, Device host) {
  Tensor out = Tensor::empty({frames, config.hidden}, DType::float32, host);
  if (host.only_shapes) return out;
  for (std::int64_t t = 0; t < frames; ++t) {
    write_position<double>(static_cast<double>(t) / config.time_scale, config.hidden,
                           out.rows(t, 1).data<float>());
  }
  return out;
}

TemporalRotaryTables temporal_rotary_tables(const Tensor& frequencies, std::int64_t frames) {
  const std::int64_t channels = 2 * frequencies.numel();
  const Device host = frequencies.device();
  TemporalRotaryTables tables{Tensor::empty({frames, channels}, DType::float32, host),
                              Tensor::empty({frames, channels}, DType::float32, host)};
  if (host.only_shapes) return tables;
  for (std::int64_t i = 0; i < frames * channels; ++i) {
    const float frequency = frequencies.data<float>()[i % channels / 2];
    const auto angle = static_cast<double>(static_cast<float>(i / channels) * frequency);
    tables.cosines.data<float>()[i] = static_cast<float>(std::cos(angle));
    tables.sines.data<float>()[i] = static_cast<float>(std::sin(angle));
  }
  return tables;
}

}  // namespace reelmesh
