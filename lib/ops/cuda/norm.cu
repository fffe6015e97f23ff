// Row norms. A row is read once, kept in shared memory as float32, and written once. The order of
// its sums depends on its length and type, not on the number of rows.
#include <bit>

#include "ops/cuda/ops.hpp"
#include "ops/places.hpp"
#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

constexpr int row_threads = 128;  // of a block; one row per block
constexpr int row_warps = row_threads / warp_size;
constexpr std::int64_t max_row_length = 10240;  // 40 KiB of shared memory

// Sum over a block; all threads get the same bits. partial: row_warps floats of shared memory.
__device__ float block_sum(float x, float* partial) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  x = warp_sum(x);
  __syncthreads();  // the partial sums of the last call have been read
  if (threadIdx.x % warp_size == 0) partial[warp] = x;
  __syncthreads();
  float sum = partial[0];
  for (int i = 1; i < row_warps; ++i) sum += partial[i];
  return sum;
}

// y = (x − mean)·rstd·weight + bias, then ·(1 + scale) + shift if there is a table. Without
// `centred` an RMS norm: mean and bias are 0.
template <class T>
struct RowNorm {
  const T* x;
  T* out;
  Numbers<T> weight, bias;
  Numbers<T> table;  ///< [table_rows, chunks·n] or none
  std::int64_t scale = 0, shift = 0;
  std::uint32_t n = 0, batch = 1, table_rows = 1;
  std::int64_t table_row = 0;  ///< elements of a row of the table
  float eps = 0;
  bool centred = true;
};

template <class T, int W>
__global__ void __launch_bounds__(row_threads) norm_rows(RowNorm<T> norm) {
  __shared__ float partial[row_warps];
  // A thread reads back only its own values. They are interleaved with those of the other threads,
  // which avoids bank conflicts.
  float* const row = shared_memory<float>() + threadIdx.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * norm.n;
  const std::uint32_t start = threadIdx.x * W, step = row_threads * W;
  const float count = static_cast<float>(norm.n);

  float sum = 0;
  float* kept = row;
  for (std::uint32_t i = start; i < norm.n; i += step, kept += step) {
    float v[W];
    load<W>(norm.x + first + i, v);
    for (int j = 0; j < W; ++j) {
      kept[j * row_threads] = v[j];
      sum += v[j];
    }
  }
  const float mean = norm.centred ? block_sum(sum, partial) / count : 0.0F;
  float squares = 0;
  kept = row;
  for (std::uint32_t i = start; i < norm.n; i += step, kept += step) {
    for (int j = 0; j < W; ++j) {
      const float d = kept[j * row_threads] - mean;
      squares += d * d;
    }
  }
  const float rstd = 1.0F / sqrtf(block_sum(squares, partial) / count + norm.eps);

  const std::int64_t of_table = blockIdx.x % norm.batch % norm.table_rows * norm.table_row;
  kept = row;
  for (std::uint32_t i = start; i < norm.n; i += step, kept += step) {
    float y[W], w[W], b[W] = {};
    norm.weight.template load<W>(i, w);
    if (norm.centred) norm.bias.template load<W>(i, b);
    for (int j = 0; j < W; ++j) y[j] = (kept[j * row_threads] - mean) * rstd * w[j] + b[j];
    if (!norm.table.none()) {
      float scale[W], shift[W];
      norm.table.template load<W>(of_table + norm.scale + i, scale);
      norm.table.template load<W>(of_table + norm.shift + i, shift);
      for (int j = 0; j < W; ++j) y[j] = y[j] * (1.0F + scale[j]) + shift[j];
    }
    store<W>(y, norm.out + first + i);
  }
}

template <class T>
void run_norm(const Tensor& x, const RowNorm<T>& norm) {
  const std::int64_t rows = x.numel() / norm.n;
  expect(norm.n <= max_row_length, "norm of rows of {} numbers, at most {}", norm.n,
         max_row_length);
  bool packed = norm.n % pack_size<T> == 0 && norm.table_row % pack_size<T> == 0;
  for (const void* p : {static_cast<const void*>(norm.x), static_cast<const void*>(norm.out),
                        norm.weight.any(), norm.bias.any(), norm.table.any()}) {
    packed = packed && aligned(p);
  }
  const auto run = [&](auto width) {
    constexpr int W = decltype(width)::value;
    constexpr std::int64_t step = row_threads * W;  // memory is rounded up to whole steps
    launch({"norm", x.device(), rows, row_threads, 4 * blocks_for(norm.n, step) * step},
           norm_rows<T, W>, norm);
  };
  if (packed) {
    run(std::integral_constant<int, pack_size<T>>());
  } else {
    run(std::integral_constant<int, 1>());
  }
}

// x += gate·y; the gate of a row is that of its batch item.
template <class T>
struct AddGated {
  T* x;
  const T* y;
  Numbers<T> table;
  std::int64_t gate, table_row;
  std::uint32_t n, batch, table_rows;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const Place place(at, n);
    float v[W], w[W], g[W];
    load<W>(x + at, v);
    load<W>(y + at, w);
    table.template load<W>(place.row % batch % table_rows * table_row + gate + place.column, g);
    for (int i = 0; i < W; ++i) v[i] = v[i] + g[i] * w[i];
    store<W>(v, x + at);
  }
};

constexpr int head_threads = 128;
constexpr int head_pack = 8;  // channels of a lane

// Norm and rotation of heads. `lanes` neighbouring lanes have one head, head_pack channels each.
template <class T>
struct HeadRows {
  T* x;
  const float *weight, *bias;    ///< bias may be null: RMS norm
  const float *cosines, *sines;  ///< or null
  std::uint32_t rows;            ///< tokens · batch · heads
  std::uint32_t batch, parts, heads, n;
  std::uint32_t lanes;  ///< of a head: a power of two
  float eps;
  bool packed;  ///< heads are whole packs at aligned addresses
};

template <class T>
__global__ void __launch_bounds__(head_threads) norm_heads(HeadRows<T> p) {
  const std::uint32_t thread = threadIdx.x, heads = head_threads / p.lanes;
  const std::uint32_t row = blockIdx.x * heads + thread / p.lanes;
  const std::uint32_t at = thread % p.lanes * head_pack;
  const bool there = row < p.rows && at < p.n;  // other lanes only take part in sums
  const std::uint32_t item = row / p.heads, token = item / p.batch;
  T* x = p.x + (std::int64_t{item} * p.parts * p.heads + row % p.heads) * p.n + at;
  const std::uint32_t count = !there ? 0 : p.n - at < head_pack ? p.n - at : head_pack;
  const auto take = [&](const auto* from, float(&into)[head_pack]) {
    if (p.packed) {
      if (there) load<head_pack>(from, into);
    } else {
      for (std::uint32_t i = 0; i < head_pack; ++i) {
        if (i < count) into[i] = widen(from[i]);
      }
    }
  };
  float v[head_pack] = {}, sum = 0, squares = 0;
  take(x, v);
  for (const float number : v) sum += number;
  const auto n = static_cast<float>(p.n);
  const float mean = p.bias != nullptr ? warp_sum(sum, static_cast<int>(p.lanes)) / n : 0.0F;
  for (std::uint32_t i = 0; i < head_pack; ++i) {
    const float d = i < count ? v[i] - mean : 0.0F;
    squares += d * d;
  }
  const float rstd = 1.0F / sqrtf(warp_sum(squares, static_cast<int>(p.lanes)) / n + p.eps);
  float weight[head_pack] = {}, bias[head_pack] = {};
  take(p.weight + at, weight);
  if (p.bias != nullptr) take(p.bias + at, bias);
  for (int i = 0; i < head_pack; ++i) {
    v[i] = (v[i] - mean) * rstd * weight[i];
    if (p.bias != nullptr) v[i] += bias[i];
  }
  if (p.cosines != nullptr) {
    float c[head_pack] = {}, s[head_pack] = {};
    const std::int64_t angle = std::int64_t{token} * p.n + at;
    take(p.cosines + angle, c);
    take(p.sines + angle, s);
    for (int i = 0; i < head_pack; i += 2) ops::rotate_pair(v[i], v[i + 1], c + i, s + i);
  }
  if (!p.packed) {
    for (std::uint32_t i = 0; i < head_pack; ++i) {
      if (i < count) x[i] = narrow<T>(v[i]);
    }
  } else if (there) {
    store<head_pack>(v, x);
  }
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps) {
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (x.empty()) return out;
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    run_norm<T>(x, {.x = address<T>(x, x.device()),
                    .out = address<T>(out, x.device()),
                    .weight = {weight, x.device()},
                    .bias = {},
                    .table = {},
                    .n = narrow_index(x.shape().back()),
                    .eps = eps,
                    .centred = false});
  });
  return out;
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps) {
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (x.empty()) return out;
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    run_norm<T>(x, {.x = address<T>(x, x.device()),
                    .out = address<T>(out, x.device()),
                    .weight = {weight, x.device()},
                    .bias = {bias, x.device()},
                    .table = {},
                    .n = narrow_index(x.shape().back()),
                    .eps = eps});
  });
  return out;
}

void modulated_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                          const Modulation& modulation, Tensor& out) {
  if (x.empty()) return;
  const std::int64_t n = x.shape(2);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    run_norm<T>(x, {.x = address<T>(x, x.device()),
                    .out = address<T>(out, x.device()),
                    .weight = {weight, x.device()},
                    .bias = {bias, x.device()},
                    .table = {modulation.table, x.device()},
                    .scale = modulation.scale * n,
                    .shift = modulation.shift * n,
                    .n = narrow_index(n),
                    .batch = narrow_index(x.shape(1)),
                    .table_rows = narrow_index(modulation.table.shape(0)),
                    .table_row = modulation.table.shape(1),
                    .eps = eps});
  });
}

void add_gated(Tensor& x, const Tensor& y, const Tensor& table, int gate) {
  const std::int64_t n = x.shape(2);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* into = address<T>(x, x.device());
    const T* from = address<T>(y, x.device());
    const Numbers<T> gates(table, x.device());
    // If rows of x are whole packs, so are the rows and chunks of the table.
    for_packs<T>("add_gated", x.device(), x.numel(), n, {into, from, gates.any()},
                 AddGated<T>{into, from, gates, gate * n, table.shape(1), narrow_index(n),
                             narrow_index(x.shape(1)), narrow_index(table.shape(0))});
  });
}

void normalise_and_rotate(Tensor& x, const HeadNorm& norm, const Tensor& cosines,
                          const Tensor& sines) {
  const std::int64_t n = x.shape(4), rows = x.numel() / std::max<std::int64_t>(1, x.shape(2) * n);
  const std::int64_t lanes = std::bit_ceil(static_cast<std::uint64_t>(blocks_for(n, head_pack)));
  expect(lanes <= warp_size, "norm of heads of {} channels", n);
  const Device device = x.device();
  const auto numbers = [&](const Tensor& t) -> const float* {
    return t.empty() ? nullptr : address<float>(t, device);
  };
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* first = address<T>(x, device);
    launch({"normalise_and_rotate", device, blocks_for(rows, head_threads / lanes), head_threads},
           norm_heads<T>,
           HeadRows<T>{.x = first,
                       .weight = numbers(norm.weight),
                       .bias = numbers(norm.bias),
                       .cosines = numbers(cosines),
                       .sines = numbers(sines),
                       .rows = narrow_index(rows),
                       .batch = narrow_index(x.shape(1)),
                       .parts = narrow_index(x.shape(2)),
                       .heads = narrow_index(x.shape(3)),
                       .n = narrow_index(n),
                       .lanes = narrow_index(lanes),
                       .eps = norm.eps,
                       .packed = n % head_pack == 0 && aligned(first)});
  });
}

}  // namespace reelmesh::gpu
