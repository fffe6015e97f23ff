#include "models/common/memory.hpp"

#include <algorithm>

#include "layout/weight_stream.hpp"
#include "ops/attention.hpp"

namespace reelmesh {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

enum class Kind { plain, vector, linear, convolution };

Kind weight_kind(const std::string& name, const Shape& shape) {
  constexpr const char* tables[] = {"shared.weight", "relative_attention_bias.weight"};
  const bool table = std::any_of(std::begin(tables), std::end(tables),
                                 [&](const char* end) { return name.ends_with(end); });
  if (shape.size() == 1) return Kind::vector;
  if (table || !name.ends_with(".weight")) return Kind::plain;
  return shape.size() >= 4 && shape.back() == 3 ? Kind::convolution : Kind::linear;
}

// Outputs and inputs of a linear layer; its weight may have more axes (1×1 convolutions, patches).
struct Matrix {
  std::int64_t out, in;
};
Matrix as_matrix(const Shape& shape) {
  return {shape[0], shape[0] == 0 ? 0 : numel(shape) / shape[0]};
}

std::int64_t linear_bytes(const Matrix& m, const Precision& precision) {
  if (precision.on_gpu) return m.out * m.in * precision.size();
  return ops::packed_linear_bytes(m.in, m.out, precision.tensors, precision.products,
                                  precision.packed_for);
}

// The weight in the type of the products, with padded channels.
std::int64_t plain_convolution_bytes(const Shape& shape, const Precision& precision) {
  const std::int64_t taps = numel(shape) / (shape[0] * shape[1]),
                     multiple = precision.on_gpu ? 8 : 16;
  return round_up(shape[0], multiple) * round_up(shape[1], multiple) * taps *
         size_of(precision.products);
}

std::int64_t convolution_bytes(const Shape& shape, const Precision& precision) {
  return precision.on_gpu
             ? plain_convolution_bytes(shape, precision)
             : ops::packed_convolution_bytes(shape, precision.products, precision.packed_for);
}

}  // namespace

std::int64_t weight_bytes(const ExpectedShapes& tensors, const Precision& precision) {
  std::int64_t bytes = 0;
  for (const auto& [name, shape] : tensors) {
    switch (weight_kind(name, shape)) {
      case Kind::plain:
        bytes += numel(shape) * precision.size();
        break;
      case Kind::vector:
        bytes += numel(shape) * size_of(DType::float32);
        break;
      case Kind::linear:
        bytes += linear_bytes(as_matrix(shape), precision);
        break;
      case Kind::convolution:
        bytes += convolution_bytes(shape, precision);
        break;
    }
  }
  return bytes;
}

ExpectedShapes tensors_below(const ExpectedShapes& tensors,
                             std::initializer_list<std::string_view> beginnings) {
  ExpectedShapes below = tensors;
  std::erase_if(below, [&](const auto& tensor) {
    return std::ranges::none_of(
        beginnings, [&](std::string_view text) { return tensor.first.starts_with(text); });
  });
  return below;
}

StreamedBytes streamed_bytes(const ExpectedShapes& tensors, const Precision& precision) {
  StreamedBytes bytes;
  std::int64_t largest = 0;
  for (const auto& [name, shape] : tensors) {
    if (weight_kind(name, shape) != Kind::linear) continue;
    const std::int64_t own = linear_bytes(as_matrix(shape), precision);
    bytes.all += own;
    largest = std::max(largest, own);
  }
  // Queries, keys and values may be multiplied as one layer; MLPs are larger than two of them.
  bytes.largest_part = precision.on_gpu ? largest : std::min(largest, max_part_bytes);
  return bytes;
}

std::int64_t loading_bytes(const ExpectedShapes& tensors, const Precision& precision) {
  std::int64_t largest = 0;
  for (const auto& [name, shape] : tensors) {
    if (weight_kind(name, shape) != Kind::convolution) continue;
    // The weight as read, converted to the type of the products if that differs, and padded.
    largest = std::max(
        largest, numel(shape) * precision.size() +
                     plain_convolution_bytes(shape, precision) * (precision.converts() ? 2 : 1));
  }
  return largest;
}

std::int64_t thread_bytes(const ExpectedShapes& tensors, const Precision& precision) {
  if (precision.on_gpu) return 0;
  // others: packed keys and values of attention, and tiles of all ops.
  constexpr std::int64_t columns = 192, others = std::int64_t{2} << 20;
  std::int64_t widest = 0;
  for (const auto& [name, shape] : tensors) {
    if (weight_kind(name, shape) == Kind::linear) widest = std::max(widest, as_matrix(shape).in);
  }
  const std::int64_t row =
      precision.size() + (precision.converts() ? 2 * size_of(precision.products) : 0);
  return columns * widest * row + others + ops::product_sums_bytes(widest, precision.products);
}

std::int64_t convolution_working_bytes(std::int64_t frames, std::int64_t in, std::int64_t out,
                                       const Precision& precision, const ops::Window& window) {
  if (!precision.on_gpu) return 0;
  constexpr std::int64_t tiles = 16, rows = 16, columns = 32;
  return tiles * precision.size() *
             ((frames + 2) * window.reach(rows) * window.reach(columns) * round_up(in, 8) +
              frames * rows * columns * round_up(out, 8)) +
         convolution_workspace_bytes;
}

std::int64_t attention_bytes(const AttentionSizes& s, const Precision& precision) {
  const std::int64_t values = s.queries * s.pairs * s.channels;
  // Sums are float32. On the CPU they become the result in place if that is float32 too.
  const bool in_place = precision.tensors == DType::float32 && !precision.on_gpu;
  const std::int64_t result = in_place ? 0 : values * precision.size();
  if (precision.on_gpu) {
    return (values + 2 * s.queries * s.pairs) * size_of(DType::float32) + result;
  }
  const std::int64_t sums =
      s.pairs *
      ops::attention_sums_bytes(s.queries, s.channels, precision.products, precision.packed_for);
  const std::int64_t packed =
      ops::packed_attention_bytes(s.keys, s.channels, precision.products, precision.packed_for);
  return (s.at_once ? values * precision.size() : sums + result) +
         ops::Attention::pairs_packed(s.pairs, packed) * packed;
}

}  // namespace reelmesh
