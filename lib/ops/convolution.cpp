#include "ops/convolution.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/processor.hpp"
#include "ops/convolution_tiles.hpp"
#include "ops/cuda/convolution.hpp"
#include "ops/cuda/convolve.hpp"
#include "ops/operation.hpp"
#include "ops/packing.hpp"
#include "ops/parallel.hpp"
#include "ops/plain_product.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh::ops {
namespace {

// Pixels of one task, if the image has them. Tiles that are only partly wanted are computed in
// full, stored in part.
constexpr std::int64_t tile_rows = 4;
constexpr std::int64_t tile_columns = 32;

std::int64_t padded(std::int64_t channels) { return (channels + 15) / 16 * 16; }

// Padded channels, frames and kernel of a convolution.
struct Extents {
  std::int64_t out, in, frames, kernel;
  dnnl::memory::dims weights() const { return {out, in, frames, kernel, kernel}; }
};

Extents padded_extents(const Shape& weight) {
  return {padded(weight[0]), padded(weight[1]), weight.size() == 5 ? weight[2] : 1, weight.back()};
}

dnnl::convolution_forward::primitive_desc describe_convolution(
    const Extents& e, DType compute, const Window& window, std::int64_t rows = tile_rows,
    std::int64_t columns = tile_columns) {
  const SingleThreadScope one;
  using Tag = dnnl::memory::format_tag;
  const auto type = onednn_type(compute);
  constexpr auto kind = dnnl::prop_kind::forward_inference;
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
  const dnnl::memory::desc src({1, e.in, e.frames, window.reach(rows), window.reach(columns)}, type,
                               Tag::ndhwc);
  const dnnl::memory::desc weights(e.weights(), type, Tag::any);
  const dnnl::memory::desc dst({1, e.out, 1, rows, columns}, dnnl::memory::data_type::f32,
                               Tag::ndhwc);
  const dnnl::memory::dims strides{1, window.stride, window.stride}, no_padding{0, 0, 0};
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kind,    algorithm,  src,        weights,
          dst,      strides, no_padding, no_padding, user_scratchpad()};
#else
  return {{kind, algorithm, src, weights, dst, strides, no_padding, no_padding},
          user_scratchpad(),
          engine()};
#endif
}

// On other processors than x86: the matrices [in, out] of plain products.
dnnl::memory::desc packed_weights(const Extents& e, DType compute, const Window& window) {
  if (on_x86) return describe_convolution(e, compute, window).weights_desc();
  return {e.weights(), onednn_type(compute), dnnl::memory::format_tag::dhwio};
}

}  // namespace

std::int64_t packed_convolution_bytes(const Shape& weight, DType products, PackedFor target) {
  const Extents e = padded_extents(weight);
  if (target == PackedFor::any_processor || compute_dtype(products) != products) {
    // AMX kernels pad input channels to multiples of 64 bytes; oneDNN 3's of float32 for AVX2 pad
    // output channels to multiples of 24.
    const auto padded = [](std::int64_t channels, std::int64_t block) {
      return (channels + block - 1) / block * block;
    };
    const std::int64_t outputs = DNNL_VERSION_MAJOR >= 3 && products == DType::float32 ? 24 : 1;
    const std::int64_t matrix =
        std::max(e.out * padded(e.in, 64 / size_of(products)), padded(e.out, outputs) * e.in);
    return matrix * e.frames * e.kernel * e.kernel * size_of(products);
  }
  static std::mutex mutex;
  static std::map<std::pair<dnnl::memory::dims, DType>, std::int64_t> known;
  const std::scoped_lock lock(mutex);
  std::int64_t& bytes = known[{e.weights(), products}];
  if (bytes == 0) {
    const Window window{.kernel = e.kernel};  // the size is the same for every stride
    bytes = static_cast<std::int64_t>(packed_weights(e, products, window).get_size());
  }
  return bytes;
}

void require_right_convolutions(Device device, DType dtype) {
  dispatch(
      device, [&] { gpu::require_right_convolutions(dtype); }, [] {});
}

void measure_convolution(Device device, const ConvolutionShape& shape, const Numerics& numerics,
                         double seconds) {
  dispatch(
      device,
      [&] {
        const bool tf32 = gpu::allows_tf32(numerics, shape.weight[1]);
        gpu::measure_convolution(device, shape, tf32, numerics.reproducible, seconds);
      },
      [] {});
}

std::string convolution_choice(Device device, const ConvolutionShape& shape,
                               const Numerics& numerics, std::size_t attempt) {
  const auto none = [] { return std::string(); };
  return dispatch(
      device,
      [&] {
        const bool tf32 = gpu::allows_tf32(numerics, shape.weight[1]);
        return gpu::convolution_choice(device, shape, tf32, attempt);
      },
      none, none);
}

bool use_convolution(Device device, const ConvolutionShape& shape, const Numerics& numerics,
                     const std::string& choice) {
  const auto same = [] { return true; };
  return dispatch(
      device,
      [&] {
        const bool tf32 = gpu::allows_tf32(numerics, shape.weight[1]);
        return gpu::use_convolution(device, shape, tf32, choice);
      },
      same, same);
}

Convolution::Convolution(const Tensor& weight, const Tensor& bias, const Numerics& numerics,
                         const Window& window)
    : in_(weight.shape(1)),
      out_(weight.shape(0)),
      kt_(weight.shape().size() == 5 ? weight.shape(2) : 1),
      window_(window),
      padded_in_(padded(in_)),
      padded_out_(padded(out_)),
      dtype_(weight.dtype()),
      compute_(compute_dtype(dtype_, weight.device())),
      bias_(bias.on(weight.device()).to(DType::float32)) {
  expect(weight.numel() == out_ * in_ * taps() && bias.shape() == Shape{out_},
         "convolution of {} x {} pixels: weight {} and bias {}", window_.kernel, window_.kernel,
         weight.shape(), bias.shape());
  dispatch(
      weight.device(),
      [&] {
        on_device_ = std::make_shared<const gpu::Convolution>(weight, bias_, numerics, window_);
      },
      [&] { pack(weight); }, [&] { pack_shape(weight); });
}

// In a dry run: takes what pack() takes, or the constructor for a GPU.
void Convolution::pack_shape(const Tensor& weight) {
  const Precision& precision = Ledger::current().precision();
  if (weight.device().is_cuda()) {
    packed_ =
        Tensor::empty(gpu::Convolution::padded_weight(weight.shape()), dtype_, weight.device());
    return;
  }
  const Tensor dense = weight.to(compute_);
  const Tensor plain = Tensor::empty({padded_out_, padded_in_, taps()}, compute_, weight.device());
  packed_ =
      Tensor::empty({packed_convolution_bytes(weight.shape(), compute_, precision.packed_for)},
                    DType::uint8, weight.device());
}

void Convolution::pack(const Tensor& weight) {
  const Extents extents = padded_extents(weight.shape());
  const dnnl::memory::desc packed = packed_weights(extents, compute_, window_);
  const Tensor dense = weight.to(compute_);
  Tensor plain = Tensor::zeros({padded_out_, padded_in_, taps()}, compute_);
  const auto line = static_cast<std::size_t>(in_ * taps() * size_of(compute_));
  for (std::int64_t o = 0; o < out_; ++o) {
    std::copy_n(static_cast<const std::byte*>(dense.raw()) + static_cast<std::size_t>(o) * line,
                line,
                static_cast<std::byte*>(plain.raw()) + o * padded_in_ * taps() * size_of(compute_));
  }
  packed_ = Tensor::empty({static_cast<std::int64_t>(packed.get_size())}, DType::uint8);
  reorder({extents.weights(), onednn_type(compute_), dnnl::memory::format_tag::oidhw}, packed)
      .run({plain.raw(), packed_.raw()});
}

// Computes tiles of this shape. On other processors than x86 the primitive is empty.
struct Convolution::Kernel {
  std::int64_t rows = 0, columns = 0;
  Primitive primitive;
};

// For tiles of this shape, or for whole ones where oneDNN would pack the weights otherwise.
Convolution::Kernel Convolution::kernel_for(std::int64_t rows, std::int64_t columns) const {
  if (!on_x86) return {rows, columns, {}};
  static std::mutex mutex;
  static std::map<std::tuple<dnnl::memory::dims, std::int64_t, DType, std::int64_t, std::int64_t>,
                  Kernel>
      made;
  const Extents extents{padded_out_, padded_in_, kt_, window_.kernel};
  const std::scoped_lock lock(mutex);
  Kernel& kernel = made[{extents.weights(), window_.stride, compute_, rows, columns}];
  if (kernel.rows == 0) {
    const SingleThreadScope one;
    const dnnl::memory::desc packed = packed_weights(extents, compute_, window_);
    auto description = describe_convolution(extents, compute_, window_, rows, columns);
    if (description.weights_desc() != packed) {
      rows = tile_rows, columns = tile_columns;
      description = describe_convolution(extents, compute_, window_);
    }
    kernel = {rows,
              columns,
              {dnnl::convolution_forward(description),
               description.scratchpad_desc(),
               {{DNNL_ARG_SRC, description.src_desc()},
                {DNNL_ARG_WEIGHTS, packed},
                {DNNL_ARG_DST, description.dst_desc()}}}};
  }
  return kernel;
}

// Copies the source pixels of a tile, channels padded with zeros. Pixels beyond the image, and
// those needed only for results that are not stored, are zero.
template <class T, class C>
const void* Convolution::gather(const Image& x, const Image& previous, std::int64_t enlarged,
                                std::int64_t frame, const ConvolutionTile& tile,
                                const Kernel& kernel) const {
  const std::int64_t patch_rows = window_.reach(kernel.rows);
  const std::int64_t patch_columns = window_.reach(kernel.columns);
  auto* patch = static_cast<C*>(thread_scratch(
      0, static_cast<std::size_t>(kt_ * patch_rows * patch_columns * padded_in_) * sizeof(C)));
  const std::int64_t first_row = tile.row * window_.stride - window_.before;
  const std::int64_t first_column = tile.column * window_.stride - window_.before;
  const PixelSpan all{first_column, first_column + patch_columns};
  C* line = patch;
  for (std::int64_t k = 0; k < kt_; ++k) {
    const std::int64_t t = frame + k - (kt_ - 1);
    const bool before = t < 0 && !previous.pieces.empty();
    const Image& image = before ? previous : x;
    const std::int64_t plane = before ? t + kt_ - 1 : std::max<std::int64_t>(0, t);
    for (std::int64_t r = 0; r < patch_rows; ++r, line += patch_columns * padded_in_) {
      const std::int64_t row = first_row + r;
      const PixelSpan columns =
          tile.needed_rows.holds(row) ? tile.needed_columns : PixelSpan{all.end, all.end};
      std::fill_n(line, (columns.begin - all.begin) * padded_in_, C(0.0F));
      for (const Image::Piece& piece : image.pieces) {
        if (!row_span(piece.box, enlarged).holds(row)) continue;
        const PixelSpan part = common(columns, column_span(piece.box, enlarged));
        if (part.count() == 0) continue;
        const T* from =
            piece.values.data<T>() +
            (plane * piece.box.rows + row / enlarged - piece.box.row) * piece.box.columns * in_;
        C* into = line + (part.begin - all.begin) * padded_in_;
        if constexpr (std::is_same_v<T, C>) {
          if (enlarged == 1 && in_ == padded_in_) {
            std::copy_n(from + (part.begin - piece.box.column) * in_, part.count() * in_, into);
            continue;
          }
        }
        for (std::int64_t column = part.begin; column < part.end; ++column, into += padded_in_) {
          const T* pixel = from + (column / enlarged - piece.box.column) * in_;
          for (std::int64_t i = 0; i < in_; ++i) into[i] = C(static_cast<float>(pixel[i]));
          std::fill(into + in_, into + padded_in_, C(0.0F));
        }
      }
      std::fill_n(line + (columns.end - all.begin) * padded_in_,
                  (all.end - columns.end) * padded_in_, C(0.0F));
    }
  }
  return patch;
}

void Convolution::run(const Image& x, const Image& previous, std::int64_t enlarged,
                      const ImageBox& want, Tensor& out, Tiles which) const {
  const std::int64_t frames = out.shape(0);
  expect(out.shape() == Shape{frames, want.rows, want.columns, out_} && out.dtype() == dtype_ &&
             (enlarged == 1 || enlarged == 2),
         "convolution to {} channels in {} writes to {} in {}", out_, name_of(dtype_), out.shape(),
         name_of(out.dtype()));
  if (out.empty()) return;
  expect(
      !x.pieces.empty() && (previous.pieces.empty() || previous.pieces.size() == x.pieces.size()),
      "convolution of {} pieces after {}", x.pieces.size(), previous.pieces.size());
  for (const Image* image : {&x, &previous}) {
    for (const Image::Piece& piece : image->pieces) {
      expect(piece.values.dtype() == dtype_ &&
                 piece.values.shape() ==
                     Shape{image == &x ? frames : kt_ - 1, piece.box.rows, piece.box.columns, in_},
             "convolution of {} in {} given {} in {}", in_, name_of(dtype_), piece.values.shape(),
             name_of(piece.values.dtype()));
    }
  }
  const bool on_gpu = bias_.device().is_cuda();
  const std::vector<ConvolutionTile> tiles = convolution_tiles(
      x, enlarged, window_, want, which, on_gpu ? gpu::Convolution::tile_rows : tile_rows,
      on_gpu ? gpu::Convolution::tile_columns : tile_columns);
  if (tiles.empty()) return;
  const Operation operation(trace::spans::convolution,
                            tile_work(tiles, frames, !previous.pieces.empty(), enlarged));
  dispatch(
      bias_.device(), [&] { on_device_->run(x, previous, enlarged, want, out, tiles); },
      [&] { run_on_cpu(x, previous, enlarged, want, out, tiles); }, [&] { run_shape(out); });
}

// In a dry run: takes what run_on_cpu() or gpu::Convolution::run() takes besides `out`.
void Convolution::run_shape(const Tensor& out) const {
  if (out.device().is_cuda()) {
    const auto [source, result] =
        gpu::Convolution::tile_shapes(out.shape(0), packed_.shape(), window_);
    Ledger::current().note_convolution({dtype_, source, packed_.shape(), window_.stride});
    const Tensor from = Tensor::empty(source, dtype_, out.device());
    const Tensor into = Tensor::empty(result, dtype_, out.device());
    const PurposeScope purpose(Purpose::workspace);
    Tensor::empty({gpu::Convolution::max_workspace}, DType::uint8, out.device());
    return;
  }
  Ledger& ledger = Ledger::current();
  ledger.note_scratch(0, kt_ * window_.reach(tile_rows) * window_.reach(tile_columns) * padded_in_ *
                             size_of(compute_));
  ledger.note_scratch(1, tile_rows * tile_columns * padded_out_ * size_of(DType::float32));
}

// Of the input, the pixels that correspond to stored ones are counted, but not those around them.
Work Convolution::tile_work(const std::vector<ConvolutionTile>& tiles, std::int64_t frames,
                            bool with_previous, std::int64_t enlarged) const {
  std::int64_t pixels = 0;
  for (const ConvolutionTile& tile : tiles) pixels += tile.rows.count() * tile.columns.count();
  const std::int64_t read_frames = frames + (with_previous ? kt_ - 1 : 0);
  const std::int64_t read_pixels = pixels * window_.stride * window_.stride / (enlarged * enlarged);
  const std::int64_t elements =
      read_pixels * read_frames * in_ + out_ * in_ * taps() + pixels * frames * out_;
  return {2 * frames * pixels * out_ * in_ * taps(), elements * size_of(dtype_)};
}

void Convolution::run_on_cpu(const Image& x, const Image& previous, std::int64_t enlarged,
                             const ImageBox& want, Tensor& out,
                             const std::vector<ConvolutionTile>& tiles) const {
  const std::int64_t frames = out.shape(0);
  const auto count = static_cast<std::int64_t>(tiles.size());
  std::map<std::pair<std::int64_t, std::int64_t>, Kernel> kernels;
  for (const ConvolutionTile& tile : tiles) {
    const auto [place, is_new] = kernels.try_emplace({tile.height, tile.width});
    if (is_new) place->second = kernel_for(tile.height, tile.width);
  }
  parallel_for(frames * count, 1, [&](std::int64_t task) {
    const std::int64_t frame = task / count;
    const ConvolutionTile& tile = tiles[static_cast<std::size_t>(task % count)];
    const Kernel& kernel = kernels.at({tile.height, tile.width});
    visit_float(dtype_, [&](auto type) {
      using T = decltype(type);
      const void* source = compute_ == DType::bfloat16
                               ? gather<T, BFloat16>(x, previous, enlarged, frame, tile, kernel)
                               : gather<T, float>(x, previous, enlarged, frame, tile, kernel);
      auto* result = static_cast<float*>(thread_scratch(
          1, static_cast<std::size_t>(tile_rows * tile_columns * padded_out_) * sizeof(float)));
      if (on_x86) {
        kernel.primitive.run({source, packed_.raw(), result});
      } else {
        run_plain(kernel, static_cast<const float*>(source), result);
      }
      const float* b = bias_.data<float>();
      for (std::int64_t row = tile.rows.begin; row < tile.rows.end; ++row) {
        for (std::int64_t column = tile.columns.begin; column < tile.columns.end; ++column) {
          const float* from =
              result + ((row - tile.row) * kernel.columns + column - tile.column) * padded_out_;
          T* into =
              out.data<T>() +
              ((frame * want.rows + row - want.row) * want.columns + column - want.column) * out_;
          for (std::int64_t o = 0; o < out_; ++o) into[o] = T(from[o] + b[o]);
        }
      }
    });
  });
}

// A row of the tile is the sum, over the places of the kernel, of its pixels times a matrix.
void Convolution::run_plain(const Kernel& kernel, const float* patch, float* result) const {
  const std::int64_t rows = window_.reach(kernel.rows), columns = window_.reach(kernel.columns);
  for (std::int64_t row = 0; row < kernel.rows; ++row, result += kernel.columns * padded_out_) {
    const auto* weights = static_cast<const float*>(packed_.raw());
    bool adds = false;
    for (std::int64_t k = 0; k < kt_; ++k) {
      for (std::int64_t y = 0; y < window_.kernel; ++y) {
        const float* line = patch + (k * rows + row * window_.stride + y) * columns * padded_in_;
        for (std::int64_t x = 0; x < window_.kernel; ++x) {
          plain_product(kernel.columns, padded_out_, padded_in_, line + x * padded_in_,
                        window_.stride * padded_in_, weights, result, std::exchange(adds, true));
          weights += padded_in_ * padded_out_;
        }
      }
    }
  }
}

Tensor Convolution::operator()(const Tensor& x, const RowWindow& have, const RowWindow& want,
                               const Tensor& previous) const {
  const std::int64_t enlarged = window_.results(have.height) == want.height ? 1 : 2;
  const std::int64_t columns = window_.results(x.shape(2) * enlarged);
  expect(window_.results(have.height * enlarged) == want.height, "convolution of {} rows to {}",
         have.height, want.height);
  Tensor out = Tensor::empty({x.shape(0), want.count, columns, out_}, dtype_, x.device());
  if (out.empty()) return out;
  const ImageBox box{have.first, have.count, 0, x.shape(2)};
  const Image image{have.height, x.shape(2), {{box, x}}};
  Image before{have.height, x.shape(2), {}};
  if (!previous.empty()) before.pieces.push_back({box, previous});
  run(image, before, enlarged, {want.first, want.count, 0, columns}, out, Tiles::all);
  return out;
}

}  // namespace reelmesh::ops
