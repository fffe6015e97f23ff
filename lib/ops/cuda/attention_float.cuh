#pragma once
// Attention in float32 without tensor cores.
#include "ops/cuda/attention.cuh"
#include "ops/math.hpp"

namespace reelmesh::gpu {

/// A block computes 32 queries, with keys in tiles of 32. It has 8 × 16 threads (y, x): each
/// computes rows 4·y … 4·y + 3 and columns x, x + 16 of a tile of scores [32, 32], and channels x,
/// x + 16, … of the result. D: channels, rounded up to a multiple of 16.
template <int D>
struct FloatAttention {
  static constexpr int threads = 128, tile = 32, rows = 4, columns = 16;
  static constexpr int row_stride = D + 1;  // avoids bank conflicts
  static constexpr std::int64_t shared_bytes = 4 * (2 * tile * row_stride + tile * (tile + 1));
};

// Loads rows [first, first + 32), zero beyond `count` rows and `channels`.
template <int D>
__device__ void load_float_rows(const float* from, std::int64_t stride, int first, int count,
                                int channels, float* into) {
  constexpr int tile = FloatAttention<D>::tile;
  for (int i = static_cast<int>(threadIdx.x); i < tile * D; i += FloatAttention<D>::threads) {
    const int row = i / D, c = i % D;
    const bool there = first + row < count && c < channels;
    into[row * FloatAttention<D>::row_stride + c] = there ? from[(first + row) * stride + c] : 0.0F;
  }
}

// Reduces with f over the 16 threads that share rows.
template <class F>
__device__ inline float over_columns(float x, F&& f) {
  for (int mask = 8; mask > 0; mask /= 2) x = f(x, shuffle_xor(x, mask));
  return x;
}

template <int D>
__global__ void __launch_bounds__(128) attend_float(AttentionArguments p) {
  using S = FloatAttention<D>;
  constexpr int tile = S::tile, rows = S::rows, columns = S::columns, stride = S::row_stride;
  constexpr int held = D / columns;  // channels of a row that a thread holds
  const AttentionBlock own(p, tile);
  const int x = static_cast<int>(threadIdx.x) % columns,
            y = static_cast<int>(threadIdx.x) / columns;
  auto* query = shared_memory<float>();
  float* other = query + tile * stride;  // keys, then values
  float* weights = other + tile * stride;
  const std::int64_t first_key = own.start(p, p.key_count, p.key_row, p.key_batch);
  const float* keys = static_cast<const float*>(p.keys) + first_key;
  const float* values = static_cast<const float*>(p.values) + first_key;
  const float* queries = static_cast<const float*>(p.queries) +
                         own.start(p, p.query_count, p.query_row, p.query_batch);

  load_float_rows<D>(queries, p.query_row, own.first, p.query_count, p.channels, query);
  float total[rows][held] = {}, largest[rows], sum[rows];
  for (int i = 0; i < rows; ++i) {
    const int q = own.first + rows * y + i;
    const bool kept = !p.first && q < p.query_count;
    largest[i] = kept ? p.largest[own.state(p, q)] : lowest;
    sum[i] = kept ? p.sum[own.state(p, q)] : 0.0F;
    for (int u = 0; u < held; ++u) {
      const int c = x + u * columns;
      if (kept && c < p.channels) total[i][u] = p.total[own.total(p, q) + c];
    }
  }

  for (int first = 0; first < p.key_count; first += tile) {
    __syncthreads();  // all threads have used the previous values
    load_float_rows<D>(keys, p.key_row, first, p.key_count, p.channels, other);
    __syncthreads();
    float score[rows][2] = {};
    for (int c = 0; c < D; ++c) {
      for (int j = 0; j < 2; ++j) {
        const float k = other[(x + j * columns) * stride + c];
        for (int i = 0; i < rows; ++i) {
          score[i][j] = fmaf(query[(rows * y + i) * stride + c], k, score[i][j]);
        }
      }
    }
    for (int i = 0; i < rows; ++i) {
      const int q = own.first + rows * y + i;
      float top = largest[i];
      for (int j = 0; j < 2; ++j) {
        const int k = first + x + j * columns;
        score[i][j] *= p.scale;
        if (p.bias != nullptr && q < p.query_count && k < p.key_count) {
          score[i][j] += own.bias(p, q)[k];
        }
        if (k >= p.key_count) score[i][j] = lowest;
        top = fmaxf(top, score[i][j]);
      }
      top = over_columns(top, [](float a, float b) { return fmaxf(a, b); });
      const float base = top == lowest ? 0.0F : top;  // all scores so far are −∞
      for (int j = 0; j < 2; ++j) {
        score[i][j] = ops::exp_approx(score[i][j] - base);
        weights[(rows * y + i) * (tile + 1) + x + j * columns] = score[i][j];
      }
      const float factor = ops::exp_approx(largest[i] - base);
      sum[i] = sum[i] * factor +
               over_columns(score[i][0] + score[i][1], [](float a, float b) { return a + b; });
      largest[i] = top;
      for (int u = 0; u < held; ++u) total[i][u] *= factor;
    }
    __syncthreads();  // all threads have used the keys
    load_float_rows<D>(values, p.key_row, first, p.key_count, p.channels, other);
    __syncthreads();
    for (int k = 0; k < tile; ++k) {
      for (int u = 0; u < held; ++u) {
        const float value = other[k * stride + x + u * columns];
        for (int i = 0; i < rows; ++i) {
          total[i][u] = fmaf(weights[(rows * y + i) * (tile + 1) + k], value, total[i][u]);
        }
      }
    }
  }

  for (int i = 0; i < rows; ++i) {
    const int q = own.first + rows * y + i;
    if (q >= p.query_count) continue;
    for (int u = 0; u < held; ++u) {
      const int c = x + u * columns;
      if (c < p.channels) p.total[own.total(p, q) + c] = total[i][u];
    }
    if (x == 0) {
      p.largest[own.state(p, q)] = largest[i];
      p.sum[own.state(p, q)] = sum[i];
    }
  }
}

}  // namespace reelmesh::gpu
