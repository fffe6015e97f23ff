#include "models/cogvideox/positions.hpp"

#include <cmath>

namespace reelmesh {
namespace {

// Calls f(token, frame, row, column) for the tokens of a box in row-major order.
template <class F>
void for_each_token(const Box& box, F&& f) {
  std::int64_t token = 0;
  for (std::int64_t t = box.offset[0]; t < box.end(0); ++t) {
    for (std::int64_t y = box.offset[1]; y < box.end(1); ++y) {
      for (std::int64_t x = box.offset[2]; x < box.end(2); ++x) f(token++, t, y, x);
    }
  }
}

// torch.linspace in float32: from both ends towards the middle, with fused multiply-adds.
std::vector<float> linspace(double start, double end, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  const auto first = static_cast<float>(start), last = static_cast<float>(end);
  const float step = n > 1 ? (last - first) / static_cast<float>(n - 1) : 0.0F;
  for (std::int64_t i = 0; i < n; ++i) {
    values[static_cast<std::size_t>(i)] =
        i < n / 2 || n == 1 ? std::fma(step, static_cast<float>(i), first)
                            : std::fma(-step, static_cast<float>(n - 1 - i), last);
  }
  return values;
}

// The centred crop of the training grid that has the clip's aspect ratio, in tokens.
struct Crop {
  double top, left, rows, columns;
};
Crop centred_crop(std::int64_t grid_rows, std::int64_t grid_columns, std::int64_t base_rows,
                  std::int64_t base_columns) {
  const double h = static_cast<double>(grid_rows), w = static_cast<double>(grid_columns);
  const double bh = static_cast<double>(base_rows), bw = static_cast<double>(base_columns);
  Crop crop{};
  if (h / w > bh / bw) {
    crop.rows = bh;
    crop.columns = std::nearbyint(bh / h * w);
  } else {
    crop.columns = bw;
    crop.rows = std::nearbyint(bw / w * h);
  }
  crop.top = std::nearbyint((bh - crop.rows) / 2.0);
  crop.left = std::nearbyint((bw - crop.columns) / 2.0);
  return crop;
}

}  // namespace

Tensor timestep_embedding(std::int64_t timestep, std::int64_t channels,
                          const CogVideoXConfig& config, Device host) {
  const std::int64_t half = channels / 2;
  Tensor out = Tensor::zeros({1, channels}, DType::float32, host);
  if (host.only_shapes) return out;
  float* values = out.data<float>();
  for (std::int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(-std::log(10000.0)) * static_cast<float>(i) /
                           static_cast<float>(static_cast<double>(half) - config.freq_shift);
    const float angle =
        static_cast<float>(timestep) * static_cast<float>(std::exp(static_cast<double>(exponent)));
    const auto sine = static_cast<float>(std::sin(static_cast<double>(angle)));
    const auto cosine = static_cast<float>(std::cos(static_cast<double>(angle)));
    values[i] = config.flip_sin_to_cos ? cosine : sine;
    values[half + i] = config.flip_sin_to_cos ? sine : cosine;
  }
  return out;
}

Tensor sincos_positions(const CogVideoXConfig& config, const Box& grid, Device host) {
  const std::int64_t channels = config.channels();
  const std::int64_t time = channels / 4, space = channels * 3 / 8;
  const auto write = [](float* into, std::int64_t n, std::int64_t index, double scale) {
    const double position = static_cast<float>(index) / static_cast<float>(scale);
    for (std::int64_t k = 0; k < n / 2; ++k) {
      const double frequency =
          1.0 / std::pow(10000.0, static_cast<double>(k) / (static_cast<double>(n) / 2.0));
      into[k] = static_cast<float>(std::sin(position * frequency));
      into[n / 2 + k] = static_cast<float>(std::cos(position * frequency));
    }
  };
  Tensor out = Tensor::empty({grid.numel(), channels}, DType::float32, host);
  if (host.only_shapes) return out;
  for_each_token(grid, [&](std::int64_t token, std::int64_t t, std::int64_t y, std::int64_t x) {
    float* row = out.data<float>() + token * channels;
    write(row, time, t, config.temporal_scale);
    write(row + time, space, x, config.spatial_scale);
    write(row + time + space, space, y, config.spatial_scale);
  });
  return out;
}

Tensor learned_positions(const Checkpoint& weights, const CogVideoXConfig& config, const Box& text,
                         const Box& video, DType dtype) {
  const Shape grid = config.sample_tokens();
  expect(Box{{0}, {config.max_text_tokens}}.contains(text) && whole_box(grid).contains(video),
         "text tokens {} and video tokens {} of a checkpoint with learned positions for {} and {}",
         to_string(text), to_string(video), config.max_text_tokens, grid);
  const Shape table{config.max_text_tokens + numel(grid), config.channels()};
  weights.ask(learned_positions_tensor, table);
  Tensor out = Tensor::empty({text.numel() + video.numel(), config.channels()}, dtype,
                             weights.device().host());
  if (out.device().only_shapes) return out.on(weights.device());
  std::int64_t done = 0;
  const auto read = [&](std::int64_t begin, std::int64_t count) {
    if (count == 0) return;
    weights.read_rows(learned_positions_tensor, table, begin, count, dtype,
                      out.rows(done, count).raw(), config.channels());
    done += count;
  };
  read(text.offset[0], text.numel());
  for (std::int64_t t = video.offset[0]; t < video.end(0); ++t) {
    for (std::int64_t y = video.offset[1]; y < video.end(1); ++y) {
      read(config.max_text_tokens + (t * grid[1] + y) * grid[2] + video.offset[2], video.extent[2]);
    }
  }
  return out.on(weights.device());
}

RotaryTables rotary_positions(const CogVideoXConfig& config, const Shape& grid, const Box& box,
                              Device host) {
  const std::int64_t n = config.head_channels, time = n / 4, space = n * 3 / 8;
  const std::int64_t base_rows = config.sample_height / config.patch.rows;
  const std::int64_t base_columns = config.sample_width / config.patch.columns;
  std::vector<float> rows, columns;
  if (config.linear_patch) {
    require(grid[1] <= base_rows && grid[2] <= base_columns, Status::unavailable,
            "found {} x {} tokens in a frame, expected at most {} x {}: this checkpoint has no "
            "positions for more",
            grid[1], grid[2], base_rows, base_columns);
    for (std::int64_t i = 0; i < grid[1]; ++i) rows.push_back(static_cast<float>(i));
    for (std::int64_t i = 0; i < grid[2]; ++i) columns.push_back(static_cast<float>(i));
  } else {
    const Crop crop = centred_crop(grid[1], grid[2], base_rows, base_columns);
    const auto h = static_cast<double>(grid[1]), w = static_cast<double>(grid[2]);
    rows = linspace(crop.top, (crop.top + crop.rows) * (h - 1) / h, grid[1]);
    columns = linspace(crop.left, (crop.left + crop.columns) * (w - 1) / w, grid[2]);
  }

  RotaryTables tables{Tensor::empty({box.numel(), n}, DType::float32, host),
                      Tensor::empty({box.numel(), n}, DType::float32, host)};
  if (host.only_shapes) return tables;
  for_each_token(box, [&](std::int64_t token, std::int64_t t, std::int64_t y, std::int64_t x) {
    std::int64_t at = token * n;
    const auto write = [&](std::int64_t size, float position) {
      for (std::int64_t k = 0; k < size / 2; ++k) {
        const float power = static_cast<float>(2 * k) / static_cast<float>(size);
        const float frequency =
            1.0F / static_cast<float>(std::pow(10000.0, static_cast<double>(power)));
        const auto angle = static_cast<double>(position * frequency);
        for (int twice = 0; twice < 2; ++twice, ++at) {
          tables.cosines.data<float>()[at] = static_cast<float>(std::cos(angle));
          tables.sines.data<float>()[at] = static_cast<float>(std::sin(angle));
        }
      }
    };
    write(time, static_cast<float>(t));
    write(space, rows[static_cast<std::size_t>(y)]);
    write(space, columns[static_cast<std::size_t>(x)]);
  });
  return tables;
}

}  // namespace reelmesh
