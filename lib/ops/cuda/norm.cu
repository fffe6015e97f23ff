// Row norms. Rows are read once, kept in shared memory, and written once. A block has several rows,
// so that it loads weights and modulation once for all of them. The order of a row's sums depends
// only on its length and type, neither on the number of rows nor on the other rows of its block.
#include <bit>

#include "ops/cuda/ops.hpp"
#include "ops/index_math.hpp"
#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

constexpr int row_threads = 128;  // of a block
constexpr int row_warps = row_threads / warp_size;
constexpr int block_rows = 4;                        // rows of a block, if there is memory for them
constexpr std::int64_t max_shared_bytes = 40 << 10;  // of a block's rows

// Sums of R values over a block; all threads get the same bits. partial: shared memory.
template <int R>
__device__ void block_sums(float (&x)[R], float (&partial)[R][row_warps]) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  for (std::uint32_t r = 0; r < R; ++r) x[r] = warp_sum(x[r]);
  __syncthreads();  // the partial sums of the last call have been read
  if (threadIdx.x % warp_size == 0) {
    for (std::uint32_t r = 0; r < R; ++r) partial[r][warp] = x[r];
  }
  __syncthreads();
  for (std::uint32_t r = 0; r < R; ++r) {
    x[r] = partial[r][0];
    for (int i = 1; i < row_warps; ++i) x[r] += partial[r][i];
  }
}

// The row of a modulation table [rows, elements] for a row of a tensor [token, batch, channel].
struct TableRow {
  std::int64_t elements = 0;
  std::int64_t offset = 0;  ///< added for the first tokens
  std::uint32_t rows = 1, batch = 1, first_tokens = 0;
  __device__ std::int64_t begin(std::uint32_t row) const {
    const std::uint32_t token = row / batch;
    return (row - token * batch) % rows * elements + (token < first_tokens ? offset : 0);
  }
};

TableRow make_table_row(const Tensor& table, const Tensor& x, const FirstTokens& first) {
  return {table.shape(1), first.chunks_later * x.shape(2), narrow_index(table.shape(0)),
          narrow_index(x.shape(1)), narrow_index(first.count)};
}

// y = (x − mean)·rstd·weight + bias, then ·(1 + scale) + shift if there is a table. Without
// `centred` an RMS norm: mean and bias are 0.
template <class T>
struct RowNorm {
  const T* x;
  T* out;
  Numbers<T> weight, bias;
  Numbers<T> table;  ///< or none
  TableRow table_row;
  std::int64_t scale = 0, shift = 0;
  std::uint32_t n = 0, rows = 0;
  float eps = 0;
  bool centred = true;
};

// What is added to x before its norm: gate·y, rounded as by add_gated.
template <class T>
struct GatedSum {
  T* x;
  const T* y;
  Numbers<T> table;
  TableRow table_row;
  std::int64_t gate;
};
struct NothingAdded {};

template <class T, int W, int R, class Added>
__global__ void __launch_bounds__(row_threads) norm_rows(RowNorm<T> norm, Added added) {
  __shared__ float partial[R][row_warps];
  const std::uint32_t start = threadIdx.x * W, step = row_threads * W;
  const std::uint32_t kept_row = (norm.n + step - 1) / step * step;
  T* const kept = shared_memory<T>();  // [R, kept_row]; a thread reads only what it has written
  const auto count = static_cast<float>(norm.n);
  // In the last block, rows beyond the last are this one again.
  const auto row = [&](std::uint32_t r) {
    return std::min<std::uint32_t>(blockIdx.x * R + r, norm.rows - 1);
  };

  float mean[R] = {}, rstd[R] = {};
  for (std::uint32_t i = start; i < norm.n; i += step) {
    float v[R][W];
    for (std::uint32_t r = 0; r < R; ++r) load<W>(norm.x + std::int64_t{row(r)} * norm.n + i, v[r]);
    float gate[W] = {};
    std::int64_t loaded = -1;  // where the row of the table begins that the gate is from
    for (std::uint32_t r = 0; r < R; ++r) {
      if constexpr (std::is_same_v<Added, GatedSum<T>>) {
        const std::int64_t begin = added.table_row.begin(row(r)),
                           at = std::int64_t{row(r)} * norm.n + i;
        if (begin != loaded) {
          added.table.template load<W>(begin + added.gate + i, gate);
          loaded = begin;
        }
        float y[W];
        load<W>(added.y + at, y);
        for (int j = 0; j < W; ++j) v[r][j] = v[r][j] + gate[j] * y[j];
        store<W>(v[r], added.x + at);
        store<W>(v[r], kept + r * kept_row + i);
        load<W>(kept + r * kept_row + i, v[r]);  // rounded
      } else {
        store<W>(v[r], kept + r * kept_row + i);
      }
      for (int j = 0; j < W; ++j) mean[r] += v[r][j];
    }
  }
  if (norm.centred) block_sums<R>(mean, partial);
  for (std::uint32_t r = 0; r < R; ++r) mean[r] = norm.centred ? mean[r] / count : 0.0F;
  for (std::uint32_t i = start; i < norm.n; i += step) {
    for (std::uint32_t r = 0; r < R; ++r) {
      float v[W];
      load<W>(kept + r * kept_row + i, v);
      for (int j = 0; j < W; ++j) {
        const float d = v[j] - mean[r];
        rstd[r] = fmaf(d, d, rstd[r]);
      }
    }
  }
  block_sums<R>(rstd, partial);
  for (std::uint32_t r = 0; r < R; ++r) rstd[r] = 1.0F / sqrtf(rstd[r] / count + norm.eps);

  for (std::uint32_t i = start; i < norm.n; i += step) {
    float weight[W], bias[W] = {}, scale[W] = {}, shift[W] = {};
    norm.weight.template load<W>(i, weight);
    if (norm.centred) norm.bias.template load<W>(i, bias);
    std::int64_t loaded = -1;  // where the row of the table begins that scale and shift are from
    for (std::uint32_t r = 0; r < R; ++r) {
      float v[W];
      load<W>(kept + r * kept_row + i, v);
      for (int j = 0; j < W; ++j) v[j] = fmaf((v[j] - mean[r]) * rstd[r], weight[j], bias[j]);
      if (!norm.table.none()) {
        const std::int64_t begin = norm.table_row.begin(row(r));
        if (begin != loaded) {
          norm.table.template load<W>(begin + norm.scale + i, scale);
          norm.table.template load<W>(begin + norm.shift + i, shift);
          loaded = begin;
        }
        for (int j = 0; j < W; ++j) v[j] = fmaf(v[j], 1.0F + scale[j], shift[j]);
      }
      store<W>(v, norm.out + std::int64_t{row(r)} * norm.n + i);
    }
  }
}

template <class T, class Added = NothingAdded>
void run_norm(const Tensor& x, RowNorm<T> norm, const Added& added = {}) {
  norm.n = narrow_index(x.shape().back());
  norm.rows = narrow_index(x.numel() / norm.n);
  bool packed = norm.n % pack_size<T> == 0 && norm.table_row.elements % pack_size<T> == 0;
  for (const void* p : {static_cast<const void*>(norm.x), static_cast<const void*>(norm.out),
                        norm.weight.any(), norm.bias.any(), norm.table.any()}) {
    packed = packed && aligned(p);
  }
  if constexpr (std::is_same_v<Added, GatedSum<T>>) {
    packed = packed && aligned(added.y) && aligned(added.table.any()) &&
             added.table_row.elements % pack_size<T> == 0;
  }
  const auto run = [&](auto width, auto rows) {
    constexpr int W = decltype(width)::value, R = decltype(rows)::value;
    constexpr std::int64_t step = row_threads * W;
    const std::int64_t bytes = blocks_for(norm.n, step) * step * R * std::int64_t{sizeof(T)};
    if (bytes > max_shared_bytes) return false;
    launch({"norm", x.device(), blocks_for(norm.rows, R), row_threads, bytes},
           norm_rows<T, W, R, Added>, norm, added);
    return true;
  };
  const auto run_width = [&](auto width) {
    return run(width, std::integral_constant<int, block_rows>()) ||
           run(width, std::integral_constant<int, 1>());
  };
  const bool done = packed ? run_width(std::integral_constant<int, pack_size<T>>())
                           : run_width(std::integral_constant<int, 1>());
  expect(done, "norm of rows of {} numbers", norm.n);
}

// Rows of n numbers, a block each.
template <class T>
struct ChangeSums {
  const T *x, *before;
  float* sums;
  std::uint32_t n;
};

template <class T>
__global__ void __launch_bounds__(row_threads) sum_changes(ChangeSums<T> p) {
  __shared__ float partial[2][row_warps];
  const std::int64_t row = std::int64_t{blockIdx.x} * p.n;
  float sums[2] = {};
  for (std::uint32_t i = threadIdx.x; i < p.n; i += row_threads) {
    const float before = widen(p.before[row + i]);
    sums[0] += fabsf(widen(p.x[row + i]) - before);
    sums[1] += fabsf(before);
  }
  block_sums<2>(sums, partial);
  if (threadIdx.x < 2) p.sums[std::int64_t{blockIdx.x} * 2 + threadIdx.x] = sums[threadIdx.x];
}

// x += gate·y; the gate of a row is that of its batch item.
template <class T>
struct AddGated {
  T* x;
  const T* y;
  Numbers<T> table;
  TableRow table_row;
  std::int64_t gate;
  std::uint32_t n;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, n);
    float v[W], w[W], g[W];
    load<W>(x + at, v);
    load<W>(y + at, w);
    table.template load<W>(table_row.begin(element.row) + gate + element.column, g);
    for (int i = 0; i < W; ++i) v[i] = v[i] + g[i] * w[i];
    store<W>(v, x + at);
  }
};

constexpr int head_threads = 128;
constexpr int head_pack = 8;   // channels of a lane
constexpr int lane_heads = 4;  // heads of a lane, for which it loads weights and angles once

// Norm and rotation of heads. `lanes` neighbouring lanes have one head, head_pack channels each.
template <class T>
struct HeadRows {
  T* x;
  const float *weight, *bias;    ///< bias may be null: RMS norm
  const float *cosines, *sines;  ///< or null
  std::uint32_t rows;            ///< tokens · batch · heads
  std::uint32_t batch, parts, heads, n;
  std::uint32_t unrotated;  ///< tokens
  std::uint32_t lanes;      ///< of a head: a power of two
  float eps;
  bool packed;  ///< heads are whole packs at aligned addresses
};

template <class T>
__global__ void __launch_bounds__(head_threads) norm_heads(HeadRows<T> p) {
  const std::uint32_t side_by_side = head_threads / p.lanes;
  const std::uint32_t first = blockIdx.x * side_by_side * lane_heads + threadIdx.x / p.lanes;
  const std::uint32_t at = threadIdx.x % p.lanes * head_pack;
  const std::uint32_t count = at >= p.n ? 0 : p.n - at < head_pack ? p.n - at : head_pack;
  const auto take = [&](const auto* from, float(&into)[head_pack]) {
    if (count == 0) return;
    if (p.packed) {
      load<head_pack>(from, into);
    } else {
      for (std::uint32_t i = 0; i < head_pack; ++i) {
        if (i < count) into[i] = widen(from[i]);
      }
    }
  };
  // Lanes without a head or channels only take part in sums.
  const auto head_row = [&](int i) { return first + i * side_by_side; };
  const auto head_address = [&](std::uint32_t row) {
    const std::uint32_t item = row / p.heads;
    return p.x + (std::int64_t{item} * p.parts * p.heads + row - item * p.heads) * p.n + at;
  };
  float v[lane_heads][head_pack] = {};
#pragma unroll
  for (int i = 0; i < lane_heads; ++i) {
    if (head_row(i) < p.rows) take(head_address(head_row(i)), v[i]);
  }
  float weight[head_pack] = {}, bias[head_pack] = {}, c[head_pack] = {}, s[head_pack] = {};
  take(p.weight + at, weight);
  if (p.bias != nullptr) take(p.bias + at, bias);
  const auto n = static_cast<float>(p.n);
  std::int64_t loaded = -1;  // the token whose cosines and sines are in c and s
#pragma unroll
  for (int i = 0; i < lane_heads; ++i) {
    float sum = 0, squares = 0;
    for (const float number : v[i]) sum += number;
    const float mean = p.bias != nullptr ? warp_sum(sum, static_cast<int>(p.lanes)) / n : 0.0F;
    for (std::uint32_t j = 0; j < head_pack; ++j) {
      const float d = j < count ? v[i][j] - mean : 0.0F;
      squares = fmaf(d, d, squares);
    }
    const float rstd = 1.0F / sqrtf(warp_sum(squares, static_cast<int>(p.lanes)) / n + p.eps);
    if (head_row(i) >= p.rows) continue;
    for (int j = 0; j < head_pack; ++j) {
      v[i][j] = fmaf((v[i][j] - mean) * rstd, weight[j], bias[j]);
    }
    const std::uint32_t token = head_row(i) / p.heads / p.batch;
    if (p.cosines != nullptr && token >= p.unrotated) {
      if (token != loaded) {
        const std::int64_t begin = std::int64_t{token - p.unrotated} * p.n + at;
        take(p.cosines + begin, c);
        take(p.sines + begin, s);
        loaded = token;
      }
      for (int j = 0; j < head_pack; j += 2) {
        ops::rotate_pair(v[i][j], v[i][j + 1], c + j, s + j);
      }
    }
    T* const into = head_address(head_row(i));
    if (!p.packed) {
      for (std::uint32_t j = 0; j < head_pack; ++j) {
        if (j < count) into[j] = narrow<T>(v[i][j]);
      }
    } else if (count > 0) {
      store<head_pack>(v[i], into);
    }
  }
}

// RMS norm over all heads of a row together, then rotation of each head. A block has a row.
template <class T>
struct WholeRows {
  T* x;
  const float* weight;
  const float *cosines, *sines;          ///< or null
  std::uint32_t batch, parts, n, width;  ///< width: channels of all heads
  float eps;
};

// W numbers; pairs may lie anywhere, packs at aligned addresses.
template <int W, class T>
__device__ inline void take_numbers(const T* from, float (&into)[W]) {
  if constexpr (W == head_pack) {
    load<W>(from, into);
  } else {
    for (int j = 0; j < W; ++j) into[j] = widen(from[j]);
  }
}

// W: a number of channels in which pairs are whole.
template <class T, int W>
__global__ void __launch_bounds__(row_threads) norm_together(WholeRows<T> p) {
  __shared__ float partial[1][row_warps];
  T* const row = p.x + std::int64_t{blockIdx.x} * p.parts * p.width;
  const std::uint32_t start = threadIdx.x * W, step = row_threads * W;
  float squares[1] = {};
  for (std::uint32_t i = start; i < p.width; i += step) {
    float v[W];
    take_numbers<W>(row + i, v);
    for (int j = 0; j < W; ++j) squares[0] = fmaf(v[j], v[j], squares[0]);
  }
  block_sums<1>(squares, partial);
  const float rstd = 1.0F / sqrtf(squares[0] / static_cast<float>(p.width) + p.eps);
  const std::int64_t angles = std::int64_t{blockIdx.x / p.batch} * p.n;
  for (std::uint32_t i = start; i < p.width; i += step) {
    float v[W], weight[W];
    take_numbers<W>(row + i, v);
    take_numbers<W>(p.weight + i, weight);
    for (int j = 0; j < W; ++j) v[j] = v[j] * rstd * weight[j];
    if (p.cosines != nullptr) {
      float c[W], s[W];
      take_numbers<W>(p.cosines + angles + i % p.n, c);
      take_numbers<W>(p.sines + angles + i % p.n, s);
      for (int j = 0; j < W; j += 2) ops::rotate_pair(v[j], v[j + 1], c + j, s + j);
    }
    if constexpr (W == head_pack) {
      store<W>(v, row + i);
    } else {
      for (int j = 0; j < W; ++j) row[i + j] = narrow<T>(v[j]);
    }
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
                    .table_row = {},
                    .eps = eps,
                    .centred = false});
  });
  return out;
}

Tensor change_sums(const Tensor& x, const Tensor& before) {
  const std::int64_t n = x.shape().back();
  Tensor sums = Tensor::empty({x.numel() / n, 2}, DType::float32, x.device());
  if (x.empty()) return sums;
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    launch({"change_sums", x.device(), sums.shape(0), row_threads}, sum_changes<T>,
           ChangeSums<T>{address<T>(x, x.device()), address<T>(before, x.device()),
                         address<float>(sums, x.device()), narrow_index(n)});
  });
  return sums;
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
                    .table_row = {},
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
                    .table_row = make_table_row(modulation.table, x, modulation.first),
                    .scale = modulation.scale * n,
                    .shift = modulation.shift * n,
                    .eps = eps});
  });
}

void add_gated(Tensor& x, const Tensor& y, const Tensor& table, int gate,
               const FirstTokens& first) {
  const std::int64_t n = x.shape(2);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* into = address<T>(x, x.device());
    const T* from = address<T>(y, x.device());
    const Numbers<T> gates(table, x.device());
    // If rows of x are whole packs, so are the rows and chunks of the table.
    for_packs<T>(
        "add_gated", x.device(), x.numel(), n, {into, from, gates.any()},
        AddGated<T>{into, from, gates, make_table_row(table, x, first), gate * n, narrow_index(n)});
  });
}

void add_gated_and_norm(Tensor& x, const Tensor& y, const Gate& gate, const Tensor& weight,
                        const Tensor& bias, float eps, const Modulation& modulation, Tensor& out) {
  if (x.empty()) return;
  const Device device = x.device();
  const std::int64_t n = x.shape(2);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* into = address<T>(x, device);
    run_norm<T>(x,
                RowNorm<T>{.x = into,
                           .out = address<T>(out, device),
                           .weight = {weight, device},
                           .bias = {bias, device},
                           .table = {modulation.table, device},
                           .table_row = make_table_row(modulation.table, x, modulation.first),
                           .scale = modulation.scale * n,
                           .shift = modulation.shift * n,
                           .eps = eps},
                GatedSum<T>{.x = into,
                            .y = address<T>(y, device),
                            .table = {gate.table, device},
                            .table_row = make_table_row(gate.table, x, gate.first),
                            .gate = gate.chunk * n});
  });
}

void normalise_and_rotate(Tensor& x, const HeadNorm& norm, const Tensor& cosines,
                          const Tensor& sines, std::int64_t unrotated) {
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
    launch({"normalise_and_rotate", device, blocks_for(rows, lane_heads * head_threads / lanes),
            head_threads},
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
                       .unrotated = narrow_index(unrotated),
                       .lanes = narrow_index(lanes),
                       .eps = norm.eps,
                       .packed = n % head_pack == 0 && aligned(first)});
  });
}

void norm_together_and_rotate(Tensor& x, const Tensor& weight, float eps, const Tensor& cosines,
                              const Tensor& sines) {
  const Device device = x.device();
  const std::int64_t n = x.shape(4), width = x.shape(3) * n;
  expect(n % 2 == 0, "norm and rotation of heads of {} channels", n);
  const auto numbers = [&](const Tensor& t) -> const float* {
    return t.empty() ? nullptr : address<float>(t, device);
  };
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* first = address<T>(x, device);
    const WholeRows<T> rows{.x = first,
                            .weight = numbers(weight),
                            .cosines = numbers(cosines),
                            .sines = numbers(sines),
                            .batch = narrow_index(x.shape(1)),
                            .parts = narrow_index(x.shape(2)),
                            .n = narrow_index(n),
                            .width = narrow_index(width),
                            .eps = eps};
    const bool packed = n % head_pack == 0 && aligned(first);
    launch({"norm_together_and_rotate", device, x.shape(0) * x.shape(1), row_threads},
           packed ? norm_together<T, head_pack> : norm_together<T, 2>, rows);
  });
}

}  // namespace reelmesh::gpu
