#include "ops/linear.hpp"

#include <algorithm>
#include <cstring>

#include "ops/amx.hpp"
#include "ops/cuda/linear.hpp"
#include "ops/math.hpp"
#include "ops/operation.hpp"
#include "ops/packing.hpp"
#include "ops/parallel.hpp"
#include "tensor/convert.hpp"
#include "tensor/cuda/runtime.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh::ops {
namespace {

// With 1920 inputs, the weights of a tile fit in a core's L2 cache while all rows are processed.
constexpr std::int64_t tile_rows = TileProduct::tile_rows;
constexpr std::int64_t tile_columns = 192;
// AMX: longer inner dimensions are divided; a task then keeps sums of at most so many rows and
// columns.
constexpr std::int64_t undivided_steps = 128, max_rows = 8 * amx::block, max_columns = 2048;

// Columns of a tile: a multiple of 16, as equal as possible; the last tile may be smaller.
std::int64_t tile_width(std::int64_t out) {
  const std::int64_t count = std::max<std::int64_t>(1, (out + tile_columns - 1) / tile_columns);
  return ((out + count - 1) / count + 15) / 16 * 16;
}

REELMESH_CLONES void add_bias_and_activate(float* tile, std::int64_t rows, std::int64_t columns,
                                           const float* bias, Activation activation) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* y = tile + r * columns;
    if (bias != nullptr) {
      for (std::int64_t c = 0; c < columns; ++c) y[c] += bias[c];
    }
    if (activation == Activation::silu) {
      for (std::int64_t c = 0; c < columns; ++c) y[c] = silu(y[c]);
    } else if (activation == Activation::gelu_tanh) {
      for (std::int64_t c = 0; c < columns; ++c) y[c] = gelu_tanh(y[c]);
    }
  }
}

WeightRows weight_rows(const Tensor& weight, const Numerics& numerics) {
  expect(weight.shape().size() == 2, "linear: weight {}", weight.shape());
  const std::int64_t in = weight.shape(1);
  return {in,
          weight.shape(0),
          weight.dtype(),
          [weight, in](std::int64_t first, std::int64_t count, void* into, std::int64_t stride) {
            const auto size = static_cast<std::size_t>(size_of(weight.dtype()));
            for (std::int64_t r = 0; r < count; ++r) {
              std::memcpy(
                  static_cast<std::byte*>(into) + static_cast<std::size_t>(r * stride) * size,
                  weight.rows(first + r, 1).raw(), static_cast<std::size_t>(in) * size);
            }
          },
          weight.device(),
          numerics};
}

// Elements from row to row of unpacked weights: at least `in`, and an odd number of cache lines.
// With a power of two the rows would share few cache sets, and packing took several times as long.
std::int64_t packing_stride(std::int64_t in, DType dtype) {
  constexpr std::int64_t line = 64;
  return ((in * size_of(dtype) + line - 1) / line | 1) * line / size_of(dtype);
}

// A buffer of the calling thread for this number of elements.
void* scratch(std::size_t slot, std::int64_t elements, DType dtype) {
  return thread_scratch(slot, static_cast<std::size_t>(elements * size_of(dtype)));
}

std::byte* at(Tensor& x, std::int64_t element) {
  return static_cast<std::byte*>(x.raw()) + element * size_of(x.dtype());
}
const std::byte* at(const Tensor& x, std::int64_t element) {
  return static_cast<const std::byte*>(x.raw()) + element * size_of(x.dtype());
}

// The same values in another type, converted by all threads.
Tensor as(DType dtype, const Tensor& x) {
  if (x.dtype() == dtype) return x;
  constexpr std::int64_t piece = 1 << 16;
  Tensor out = Tensor::empty(x.shape(), dtype);
  parallel_for((x.numel() + piece - 1) / piece, 1, [&](std::int64_t i) {
    const std::int64_t first = i * piece;
    convert(at(x, first), x.dtype(), at(out, first), dtype, std::min(piece, x.numel() - first));
  });
  return out;
}

// into[column · into_stride + row] = from[row · from_stride + column].
template <class T>
void transpose(const T* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               T* into, std::int64_t into_stride) {
  constexpr std::int64_t together = 8;  // rows that a cache holds, whatever their distance
  for (std::int64_t begin = 0; begin < rows; begin += together) {
    const T* block = from + begin * from_stride;
    T* to = into + begin;
    const std::int64_t some = std::min(together, rows - begin);
    for (std::int64_t column = 0; column < columns; ++column) {
      for (std::int64_t r = 0; r < some; ++r) {
        to[column * into_stride + r] = block[r * from_stride + column];
      }
    }
  }
}

}  // namespace

WeightRows transposed(const WeightRows& weight, bool in_memory) {
  WeightRows result = weight;
  std::swap(result.in, result.out);
  result.float8 = nullptr;
  if (in_memory) {
    Tensor all = Tensor::empty({weight.out, weight.in}, weight.dtype, weight.device.host());
    if (all.device().only_shapes) return result;
    constexpr std::int64_t some = 64;
    parallel_for((weight.out + some - 1) / some, 1, [&](std::int64_t i) {
      const std::int64_t first = i * some;
      weight.read(first, std::min(some, weight.out - first), at(all, first * weight.in), weight.in);
    });
    result.read = [all = std::as_const(all)](std::int64_t first, std::int64_t count, void* into,
                                             std::int64_t stride) {
      visit_float(all.dtype(), [&](auto type) {
        using T = decltype(type);
        transpose(all.data<T>() + first, all.shape(1), all.shape(0), count, static_cast<T*>(into),
                  stride);
      });
    };
    return result;
  }
  result.read = [weight](std::int64_t first, std::int64_t count, void* into, std::int64_t stride) {
    constexpr std::int64_t block_rows = 64;
    std::vector<std::byte> block(
        static_cast<std::size_t>(block_rows * weight.in * size_of(weight.dtype)));
    visit_float(weight.dtype, [&](auto type) {
      using T = decltype(type);
      for (std::int64_t row = 0; row < weight.out; row += block_rows) {
        const std::int64_t rows = std::min(block_rows, weight.out - row);
        weight.read(row, rows, block.data(), weight.in);
        transpose(reinterpret_cast<const T*>(block.data()) + first, weight.in, rows, count,
                  static_cast<T*>(into) + row, stride);
      }
    });
  };
  return result;
}

std::int64_t product_sums_bytes(std::int64_t in, DType products) {
  const bool divided = products == DType::bfloat16 && in > undivided_steps * amx::step_values;
  return divided ? max_rows * max_columns * size_of(DType::float32) : 0;
}

LinearForm::LinearForm(std::int64_t in, std::int64_t out, DType dtype, Device device)
    : in_(in), out_(out), dtype_(dtype), compute_(compute_dtype(dtype, device)), device_(device) {
  if (device.is_cuda()) return;
  if (uses_amx(compute_)) engine_ = Engine::amx;
  const std::int64_t width = tile_width(out_);
  for (std::int64_t column = 0; column < out_; column += width) {
    const std::int64_t columns = std::min(width, out_ - column);
    if (device.only_shapes) {
      tiles_.push_back({column, columns, 0, elements_});
      const PackedFor target = Ledger::current().precision().packed_for;
      elements_ += packed_matrix_bytes(in_, columns, compute_, target) / size_of(compute_);
      continue;
    }
    if (engine_ == Engine::amx) {
      tiles_.push_back({column, columns, 0, elements_});
      elements_ += amx::packed_elements(columns, in_);
      continue;
    }
    if (products_.empty() || columns != width) {
      products_.emplace_back(tile_rows, columns, in_, compute_);
    }
    tiles_.push_back({column, columns, products_.size() - 1, elements_});
    elements_ += products_.back().packed_elements();
  }
}

std::int64_t LinearForm::units() const { return device_.is_cuda() ? out_ : std::ssize(tiles_); }

std::int64_t LinearForm::offset(std::int64_t unit) const {
  if (device_.is_cuda()) return unit * in_;
  return unit < units() ? tile(unit).offset : elements_;
}

std::int64_t LinearForm::row(std::int64_t unit) const {
  if (device_.is_cuda()) return unit;
  return unit < units() ? tile(unit).column : out_;
}

Tensor LinearForm::pack(const WeightRows& weight, std::int64_t first, std::int64_t count) const {
  Tensor packed = Tensor::empty({offset(first + count) - offset(first)}, dtype_, device_);
  pack(weight, first, count, packed);
  return packed;
}

void LinearForm::pack(const WeightRows& weight, std::int64_t first, std::int64_t count,
                      Tensor& packed) const {
  const std::int64_t elements = offset(first + count) - offset(first);
  expect(packed.numel() == elements, "{} elements are packed to a tensor {}", elements,
         packed.shape());
  if (packed.empty()) return;
  const std::int64_t row_bytes = in_ * size_of(dtype_);
  // Reads rows of the weight to the host, for upload().
  const auto read = [&](void* host, std::int64_t at_byte, std::int64_t bytes) {
    const std::int64_t some = std::max<std::int64_t>(1, (256 << 10) / row_bytes);
    const std::int64_t begin = first + at_byte / row_bytes, rows = bytes / row_bytes;
    parallel_for((rows + some - 1) / some, 1, [&](std::int64_t i) {
      const std::int64_t from = i * some;
      weight.read(begin + from, std::min(some, rows - from),
                  static_cast<std::byte*>(host) + from * row_bytes, in_);
    });
  };
  dispatch(
      device_,
      [&] { cuda::upload(device_, packed.address_on(device_), packed.bytes(), row_bytes, read); },
      [&] { pack_on_cpu(weight, first, count, packed); }, [&] { note_packing_scratch(); });
}

// As pack_on_cpu() takes it; the first tile is the widest.
void LinearForm::note_packing_scratch() const {
  if (device_.is_cuda() || tiles_.empty()) return;
  Ledger& ledger = Ledger::current();
  const std::int64_t plain = tiles_.front().columns * packing_stride(in_, compute_);
  ledger.note_scratch(0, plain * size_of(dtype_));
  if (compute_ == dtype_) return;
  const std::int64_t packed = (tiles_.size() > 1 ? tiles_[1].offset : elements_);
  ledger.note_scratch(1, plain * size_of(compute_));
  ledger.note_scratch(2, packed * size_of(compute_));
}

// As multiply() takes it for this number of rows. With AMX, and for processors that may have it,
// at most.
void LinearForm::note_product_scratch(std::int64_t rows) const {
  if (device_.is_cuda() || tiles_.empty()) return;
  Ledger& ledger = Ledger::current();
  const bool any = ledger.precision().packed_for == PackedFor::any_processor;
  if (compute_ == DType::bfloat16 && (engine_ == Engine::amx || any)) {
    const std::int64_t part = std::min(max_rows, (rows + amx::block - 1) / amx::block * amx::block);
    const std::int64_t inner = std::min(in_, undivided_steps * amx::step_values);
    ledger.note_scratch(0, amx::packed_elements(part, inner) * size_of(compute_));
    ledger.note_scratch(1, std::max(product_sums_bytes(in_, compute_),
                                    2 * amx::block * amx::block * size_of(DType::float32)));
    if (engine_ == Engine::amx) return;
  }
  if (rows % tile_rows > 0) {
    ledger.note_scratch(
        0, rows_of_last_tile(tile_rows, rows % tile_rows, compute_) * in_ * size_of(compute_));
  }
  ledger.note_scratch(1, tile_rows * tiles_.front().columns * size_of(DType::float32));
  if (compute_ == dtype_) return;
  const std::int64_t packed = (tiles_.size() > 1 ? tiles_[1].offset : elements_);
  ledger.note_scratch(2, packed * size_of(compute_));
}

void LinearForm::pack_on_cpu(const WeightRows& weight, std::int64_t first, std::int64_t count,
                             Tensor& packed) const {
  const std::int64_t stride = packing_stride(in_, compute_);
  std::vector<Primitive> packings;
  for (const TileProduct& product : products_) packings.push_back(product.packing(true, stride));
  parallel_for(count, 1, [&](std::int64_t i) {
    const Tile& own = tile(first + i);
    const std::int64_t plain = own.columns * stride;
    void* rows = scratch(0, plain, dtype_);
    weight.read(own.column, own.columns, rows, stride);
    void* into = at(packed, own.offset - offset(first));
    if (engine_ == Engine::amx) {
      amx::pack_right_transposed(static_cast<const BFloat16*>(rows), stride, in_, own.columns,
                                 static_cast<std::byte*>(into));
      return;
    }
    const Primitive& packing = packings[own.product];
    if (compute_ == dtype_) {
      packing.run({rows, into});
      return;
    }
    void* wide = scratch(1, plain, compute_);
    convert(rows, dtype_, wide, compute_, plain);
    const std::int64_t elements = products_[own.product].packed_elements();
    void* wide_packed = scratch(2, elements, compute_);
    packing.run({wide, wide_packed});
    convert(wide_packed, compute_, into, dtype_, elements);
  });
}

void LinearForm::multiply(const Tensor& input, const Tensor& packed, std::int64_t first_unit,
                          std::int64_t count, const Tensor& bias, Activation activation,
                          Tensor& out) const {
  if (engine_ == Engine::amx) {
    multiply_by_amx(input, packed, first_unit, count, bias, activation, out);
  } else {
    multiply_by_onednn(input, packed, first_unit, count, bias, activation, out);
  }
}

void LinearForm::multiply_by_amx(const Tensor& input, const Tensor& packed, std::int64_t first_unit,
                                 std::int64_t count, const Tensor& bias, Activation activation,
                                 Tensor& out) const {
  constexpr std::int64_t block = amx::block, value = sizeof(BFloat16);
  const std::int64_t rows = input.numel() / in_, steps = amx::step_count(in_);
  // Long inner dimensions are divided into spans; between them, sums are in memory. The rows of a
  // task are as many as stay in a core's L2 cache with a span of their inputs (1 MiB), next to the
  // weights of a block of columns, which are used for all of them.
  constexpr std::int64_t longest_span = 64, cached_steps = 480;
  const std::int64_t spans =
      steps <= undivided_steps ? 1 : (steps + longest_span - 1) / longest_span;
  const std::int64_t span = (steps + spans - 1) / spans;
  const std::int64_t max =
      std::clamp<std::int64_t>(cached_steps / span, 4, max_rows / block) * block;
  const std::int64_t parts = (rows + max - 1) / max;
  const std::int64_t part = ((rows + parts - 1) / parts + block - 1) / block * block;
  // A task is one part of the rows with a share of the tiles: with all of them if there are enough
  // tasks and not too many sums, because each task packs its rows.
  const std::int64_t wanted =
      std::min(count, std::max((4 * omp_get_max_threads() + parts - 1) / parts,
                               (count * tile_columns + max_columns - 1) / max_columns));
  const std::int64_t share = (count + wanted - 1) / wanted, shares = (count + share - 1) / share;
  parallel_for(parts * shares, 1, [&](std::int64_t task) {
    const std::int64_t first_row = task / shares * part;
    const std::int64_t height = std::min(part, rows - first_row);
    if (height <= 0) return;  // the parts before are rounded up
    const std::int64_t begin = first_unit + task % shares * share;
    const std::int64_t end = std::min(begin + share, first_unit + count);
    const std::int64_t blocks = (height + block - 1) / block;
    auto* left = static_cast<std::byte*>(
        scratch(0, amx::packed_elements(part, span * amx::step_values), DType::bfloat16));
    // Results are written during the next product. So two blocks of sums take turns, unless all
    // sums are kept for the next span.
    auto* sums = static_cast<float*>(
        scratch(1, spans == 1 ? 2 * block * block : part * (share * tile_columns), DType::float32));
    std::int64_t turn = 0;
    amx::Finish results;
    bool pending = false;
    const amx::Kernels& use = amx::kernels();
    const amx::Scope scope;
    for (std::int64_t s = 0; s < spans; ++s) {
      const std::int64_t step = s * span, some = std::min(span, steps - step);
      const std::int64_t first_input = step * amx::step_values;
      const std::int64_t inputs = std::min(some * amx::step_values, in_ - first_input);
      amx::pack_left(input.data<BFloat16>() + first_row * in_ + first_input, in_, height, inputs,
                     left);
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const Tile& own = tile(unit);
        const std::byte* weights = at(packed, own.offset - offset(first_unit));
        for (std::int64_t column = 0; column < own.columns; column += block) {
          const std::int64_t columns = std::min(block, own.columns - column);
          const std::int64_t column_tiles = amx::tile_count(columns);
          const std::byte* b = weights + amx::packed_elements(column, in_) * value +
                               step * column_tiles * amx::tile_bytes;
          // The next block of columns; after the last one of the share, what follows in memory.
          const std::byte* next = b + steps * column_tiles * amx::tile_bytes;
          const std::int64_t lines = (column_tiles * amx::tile_rows + blocks - 1) / blocks;
          for (std::int64_t row = 0; row < height; row += block) {
            const std::int64_t count_rows = std::min(block, height - row);
            const std::int64_t row_tiles = amx::tile_count(count_rows);
            const std::int64_t at_column = own.column + column;
            float* c = sums + (spans == 1 ? turn++ % 2 * block * block
                                          : part * (at_column - tile(begin).column) +
                                                row * column_tiles * amx::tile_rows);
            use.product({left + amx::packed_elements(row, inputs) * value, row_tiles, b,
                         column_tiles, some, c, s > 0, next + row / block * lines * 64, lines},
                        pending ? &results : nullptr);
            pending = s + 1 == spans;
            results = {.c = c,
                       .row_tiles = row_tiles,
                       .rows = count_rows,
                       .columns = columns,
                       .factors = nullptr,
                       .bias = bias.empty() ? nullptr : bias.data<float>() + at_column,
                       .activation = activation,
                       .out = out.data<BFloat16>() + (first_row + row) * out_ + at_column,
                       .stride = out_};
          }
        }
      }
    }
    if (pending) use.finish(results);
  });
}

void LinearForm::multiply_by_onednn(const Tensor& input, const Tensor& packed,
                                    std::int64_t first_unit, std::int64_t count, const Tensor& bias,
                                    Activation activation, Tensor& out) const {
  const std::int64_t rows = input.numel() / in_;
  // A task is one tile of weights with several tiles of rows: all rows if there are enough tasks.
  const std::int64_t row_tiles = (rows + tile_rows - 1) / tile_rows;
  const std::int64_t wanted = (8 * omp_get_max_threads() + count - 1) / count;
  const std::int64_t share = (row_tiles + wanted - 1) / wanted;
  const std::int64_t shares = (row_tiles + share - 1) / share;
  // Rows of the last tile, and GEMMs of that height.
  const std::int64_t rest = rows % tile_rows;
  const std::int64_t last_rows = rows_of_last_tile(tile_rows, rest, compute_);
  std::vector<TileProduct> last_products;
  for (std::size_t i = 0; rest > 0 && i < products_.size(); ++i) {
    last_products.emplace_back(last_rows, products_[i].columns(), in_, compute_);
  }
  parallel_for(count * shares, 1, [&](std::int64_t task) {
    const Tile& own = tile(first_unit + task / shares);
    const TileProduct& product = products_[own.product];
    const void* weights = at(packed, own.offset - offset(first_unit));
    if (compute_ != dtype_) {
      void* wide = scratch(2, product.packed_elements(), compute_);
      convert(weights, dtype_, wide, compute_, product.packed_elements());
      weights = wide;
    }
    auto* result = static_cast<float*>(scratch(1, tile_rows * own.columns, DType::float32));
    const std::int64_t first = task % shares * share;
    for (std::int64_t t = first; t < std::min(first + share, row_tiles); ++t) {
      const std::int64_t row = t * tile_rows, height = std::min(tile_rows, rows - row);
      const auto bytes = static_cast<std::size_t>(height * in_ * size_of(compute_));
      const void* source = at(input, row * in_);
      if (height == tile_rows) {
        product.run(source, weights, result);
      } else {
        auto* padded = static_cast<std::byte*>(scratch(0, last_rows * in_, compute_));
        std::memcpy(padded, source, bytes);
        std::memset(padded + bytes, 0,
                    static_cast<std::size_t>((last_rows - height) * in_ * size_of(compute_)));
        last_products[own.product].run(padded, weights, result);
      }
      add_bias_and_activate(result, height, own.columns,
                            bias.empty() ? nullptr : bias.data<float>() + own.column, activation);
      for (std::int64_t r = 0; r < height; ++r) {
        convert(result + r * own.columns, DType::float32, at(out, (row + r) * out_ + own.column),
                dtype_, own.columns);
      }
    }
  });
}

Linear::Linear(const Tensor& weight, const Tensor& bias, const Numerics& numerics) {
  if (!weight.device().is_cuda()) {
    *this = Linear(weight_rows(weight, numerics), bias);
    return;
  }
  expect(weight.shape().size() == 2, "linear: weight {}", weight.shape());
  form_ = {weight.shape(1), weight.shape(0), weight.dtype(), weight.device()};
  numerics_ = numerics;
  packed_ = weight;
  bias_ = own_bias(bias);
}

Linear::Linear(const WeightRows& weight, const Tensor& bias)
    : form_(weight.in, weight.out, weight.dtype, weight.device), numerics_(weight.numerics) {
  bias_ = own_bias(bias);
  packed_ = form_.pack(weight, 0, form_.units());
}

Linear::Linear(const LinearForm& form, std::shared_ptr<const WeightSource> source,
               const Tensor& bias, const Numerics& numerics)
    : form_(form), numerics_(numerics), source_(std::move(source)) {
  bias_ = own_bias(bias);
}

// As products take it.
Tensor Linear::own_bias(const Tensor& bias) const {
  expect(bias.empty() || bias.shape() == Shape{form_.out()}, "linear: {} outputs and bias {}",
         form_.out(), bias.shape());
  if (bias.empty()) return {};
  const Device device = form_.device();
  return device.is_cuda() ? bias.on(device).to(form_.dtype()) : bias.to(DType::float32);
}

void Linear::set_together(const WeightRows& weight, const Tensor& bias) {
  expect(weight.in == form_.in() && weight.out == form_.out() && weight.dtype == form_.dtype() &&
             bias.numel() == bias_.numel(),
         "a linear layer of {} inputs and {} outputs in {} is given {} and {} in {}, bias {}",
         form_.in(), form_.out(), name_of(form_.dtype()), weight.in, weight.out,
         name_of(weight.dtype), bias.shape());
  if (source_ != nullptr) {
    source_->set_together(weight);
  } else {
    form_.pack(weight, 0, form_.units(), packed_);
  }
  if (!bias.empty()) bias_.copy_from(own_bias(bias));
}

Linear Linear::backward() const {
  expect(form_.device().is_cuda() && pass_ == Pass::forward, "linear: backward on {}",
         to_string(form_.device()));
  Linear layer = *this;
  layer.pass_ = Pass::backward;
  layer.bias_ = {};
  return layer;
}

Tensor Linear::operator()(const Tensor& x, Activation activation,
                          [[maybe_unused]] std::int64_t all_rows) const {
  const DType dtype = form_.dtype();
  const std::int64_t in = in_features(), out = out_features();
  expect(x.dtype() == dtype && !x.shape().empty() && x.shape().back() == in,
         "linear of {} inputs in {} given {} in {}", in, name_of(dtype), x.shape(),
         name_of(x.dtype()));
  const auto visit = [&](const WeightSource::Use& use) {
    if (source_ != nullptr) {
      source_->visit(use);
    } else {
      use(0, form_.units(), packed_);
    }
  };
  const std::int64_t rows = x.numel() / in, size = size_of(dtype);
  // The product with units [first, first + count) of the weight.
  const auto product_work = [&](std::int64_t first, std::int64_t count) {
    // All units in a backward pass.
    const std::int64_t columns =
        pass_ == Pass::forward ? form_.row(first + count) - form_.row(first) : out;
    return Work{2 * rows * in * columns, (rows * in + in * columns + rows * columns) * size};
  };
  Shape shape = x.shape();
  shape.back() = out;
  const auto on_cuda = [&] {
    Tensor y;
    visit([&](std::int64_t first, std::int64_t count, const Tensor& values) {
      const Operation product(trace::spans::product, product_work(first, count));
      y = gpu::linear(x, values.reshape({form_.out(), form_.in()}), pass_, bias_, activation,
                      numerics_, all_rows);
    });
    return y;
  };
  const auto on_cpu = [&] {
    Tensor y = Tensor::empty(shape, dtype);
    const Tensor input = as(form_.compute(), x);
    visit([&](std::int64_t first, std::int64_t count, const Tensor& values) {
      if (rows == 0 || count == 0) return;
      const Operation product(trace::spans::product, product_work(first, count));
      form_.multiply(input, values, first, count, bias_, activation, y);
    });
    return y;
  };
  const auto on_shapes = [&] {
    Tensor y = Tensor::empty(shape, dtype, x.device());
    const Tensor input = x.device().is_cuda() ? x : x.to(form_.compute());
    visit([&](std::int64_t first, std::int64_t count, const Tensor&) {
      if (rows == 0 || count == 0) return;
      const Operation product(trace::spans::product, product_work(first, count));
      form_.note_product_scratch(rows);
    });
    return y;
  };
  return dispatch(x.device(), on_cuda, on_cpu, on_shapes);
}

}  // namespace reelmesh::ops
