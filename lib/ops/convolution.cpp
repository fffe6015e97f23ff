#include "ops/convolution.hpp"

#include <algorithm>

#include "base/trace.hpp"
#include "ops/parallel.hpp"

namespace reelmesh::ops {
namespace {

// Pixels of one task. A tile that reaches over the image's edge computes more than it stores.
constexpr std::int64_t tile_rows = 4;
constexpr std::int64_t tile_columns = 32;
constexpr std::int64_t patch_rows = tile_rows + 2;
constexpr std::int64_t patch_columns = tile_columns + 2;

std::int64_t padded(std::int64_t channels) { return (channels + 15) / 16 * 16; }

}  // namespace

Convolution::Convolution(const Tensor& weight, const Tensor& bias)
    : in_(weight.shape(1)),
      out_(weight.shape(0)),
      kt_(weight.shape().size() == 5 ? weight.shape(2) : 1),
      padded_in_(padded(in_)),
      padded_out_(padded(out_)),
      dtype_(weight.dtype()),
      bias_(bias.to(DType::float32)) {
  const std::int64_t taps = kt_ * 9;
  expect(weight.numel() == out_ * in_ * taps && bias.shape() == Shape{out_},
         "convolution: weight {} and bias {}", to_string(weight.shape()), to_string(bias.shape()));
  const DType compute = compute_dtype(dtype_);
  using Tag = dnnl::memory::format_tag;
  const auto type = onednn_type(compute);
  const dnnl::memory::dims weight_dims{padded_out_, padded_in_, kt_, 3, 3};
  {
    const ForOneThread one;
    const dnnl::memory::desc source({1, padded_in_, kt_, patch_rows, patch_columns}, type,
                                    Tag::ndhwc);
    const dnnl::memory::desc result({1, padded_out_, 1, tile_rows, tile_columns},
                                    dnnl::memory::data_type::f32, Tag::ndhwc);
    description_ = {{dnnl::prop_kind::forward_inference,
                     dnnl::algorithm::convolution_direct,
                     source,
                     {weight_dims, type, Tag::any},
                     result,
                     {1, 1, 1},
                     {0, 0, 0},
                     {0, 0, 0}},
                    user_scratchpad(),
                    engine()};
    primitive_ = dnnl::convolution_forward(description_);
  }
  const Tensor dense = weight.to(compute);
  const Tensor plain = Tensor::zeros({padded_out_, padded_in_, taps}, compute);
  const auto line = static_cast<std::size_t>(in_ * taps * size_of(compute));
  for (std::int64_t o = 0; o < out_; ++o) {
    std::copy_n(static_cast<const std::byte*>(dense.raw()) + static_cast<std::size_t>(o) * line,
                line,
                static_cast<std::byte*>(plain.raw()) + o * padded_in_ * taps * size_of(compute));
  }
  packed_ = Tensor::empty({static_cast<std::int64_t>(description_.weights_desc().get_size())},
                          DType::uint8);
  reorder({weight_dims, type, Tag::oidhw}, plain.raw(), description_.weights_desc(), packed_.raw());
}

Tensor Convolution::operator()(const Tensor& x, const RowWindow& have, const RowWindow& want,
                               const Tensor& previous) const {
  const std::int64_t enlarged = want.height / std::max<std::int64_t>(1, have.height);
  const std::int64_t frames = x.shape(0), source_columns = x.shape(2);
  const std::int64_t columns = source_columns * enlarged;
  expect(x.dtype() == dtype_ && x.shape(1) == have.count && x.shape(3) == in_ &&
             (enlarged == 1 || enlarged == 2) && have.height * enlarged == want.height,
         "convolution of {} in {} given {} in {}", in_, name_of(dtype_), to_string(x.shape()),
         name_of(x.dtype()));
  expect(previous.empty() || (previous.shape(0) == kt_ - 1 && previous.shape(1) == have.count),
         "convolution over {} frames given {} before", kt_, to_string(previous.shape()));
  Tensor out = Tensor::empty({frames, want.count, columns, out_}, dtype_);
  if (out.empty()) return out;
  const std::int64_t top = std::max<std::int64_t>(0, want.first - 1) / enlarged;
  const std::int64_t bottom = std::min(want.height - 1, want.first + want.count) / enlarged;
  expect(top >= have.first && bottom < have.first + have.count,
         "convolution of rows {}..{} has rows {}..{} where it needs {}..{}", want.first,
         want.first + want.count - 1, have.first, have.first + have.count - 1, top, bottom);
  trace::recorder().flops += 2 * out.numel() * in_ * kt_ * 9;

  const std::int64_t row_tiles = (want.count + tile_rows - 1) / tile_rows;
  const std::int64_t column_tiles = (columns + tile_columns - 1) / tile_columns;
  const DType compute = compute_dtype(dtype_);

  // The tile's source pixels, channels padded with zeros, zero beyond the image.
  const auto gather = [&](auto type, auto into_type, std::int64_t frame, std::int64_t row,
                          std::int64_t column) {
    using T = decltype(type);
    using C = decltype(into_type);
    auto* patch = static_cast<C*>(thread_scratch(
        0, static_cast<std::size_t>(kt_ * patch_rows * patch_columns * padded_in_) * sizeof(C)));
    C* into = patch;
    for (std::int64_t k = 0; k < kt_; ++k) {
      const std::int64_t t = frame + k - (kt_ - 1);
      const bool from_cache = t < 0 && !previous.empty();
      const T* plane = (from_cache ? previous.data<T>() : x.data<T>()) +
                       (from_cache ? t + kt_ - 1 : std::max<std::int64_t>(0, t)) * have.count *
                           source_columns * in_;
      for (std::int64_t r = 0; r < patch_rows; ++r) {
        const std::int64_t at = want.first + row + r - 1;
        // Rows past the window's last are computed only to fill the tile; they need no source.
        const bool inside = at >= 0 && at < want.height && at <= want.first + want.count;
        const T* line = plane + (inside ? at / enlarged - have.first : 0) * source_columns * in_;
        for (std::int64_t c = 0; c < patch_columns; ++c, into += padded_in_) {
          const std::int64_t pixel = column + c - 1;
          if (!inside || pixel < 0 || pixel >= columns) {
            std::fill_n(into, padded_in_, C(0.0F));
            continue;
          }
          const T* from = line + pixel / enlarged * in_;
          if constexpr (std::is_same_v<T, C>) {
            std::copy_n(from, in_, into);
          } else {
            for (std::int64_t i = 0; i < in_; ++i) into[i] = C(static_cast<float>(from[i]));
          }
          std::fill(into + in_, into + padded_in_, C(0.0F));
        }
      }
    }
    return static_cast<const void*>(patch);
  };

  parallel_for(frames * row_tiles * column_tiles, 1, [&](std::int64_t task) {
    const std::int64_t frame = task / (row_tiles * column_tiles);
    const std::int64_t row = task / column_tiles % row_tiles * tile_rows;
    const std::int64_t column = task % column_tiles * tile_columns;
    visit_float(dtype_, [&](auto type) {
      using T = decltype(type);
      const void* source = compute == DType::bfloat16 ? gather(type, BFloat16{}, frame, row, column)
                                                      : gather(type, float{}, frame, row, column);
      auto* result = static_cast<float*>(thread_scratch(
          1, static_cast<std::size_t>(tile_rows * tile_columns * padded_out_) * sizeof(float)));
      execute(
          primitive_, description_.scratchpad_desc(),
          {{DNNL_ARG_SRC,
            dnnl::memory(description_.src_desc(), engine(), const_cast<void*>(source))},
           {DNNL_ARG_WEIGHTS, dnnl::memory(description_.weights_desc(), engine(), packed_.raw())},
           {DNNL_ARG_DST, dnnl::memory(description_.dst_desc(), engine(), result)}});
      const float* b = bias_.data<float>();
      for (std::int64_t r = 0; r < tile_rows && row + r < want.count; ++r) {
        for (std::int64_t c = 0; c < tile_columns && column + c < columns; ++c) {
          const float* from = result + (r * tile_columns + c) * padded_out_;
          T* into = out.data<T>() + ((frame * want.count + row + r) * columns + column + c) * out_;
          for (std::int64_t o = 0; o < out_; ++o) into[o] = T(from[o] + b[o]);
        }
      }
    });
  });
  return out;
}

}  // namespace reelmesh::ops
