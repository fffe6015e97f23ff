#pragma once
// Gradients of attention in float32 without tensor cores.
#include "ops/cuda/attention_backward.cuh"
#include "ops/math.hpp"

namespace reelmesh::gpu {

/// 8 × 16 threads (y, x): each computes `rows` rows from rows·y on and `columns` columns x, x + 16
/// of a tile of scores, and channels x, x + 16, … of the gradients. D: channels, rounded up to 64
/// or 128.
template <int D>
struct FloatBackward {
  static constexpr int threads = 128, lanes = 16;
  static constexpr int size = D <= 64 ? 32 : 16;
  static constexpr int rows = size / 8, columns = size / lanes;
  static constexpr int row_stride = D + 1;  // avoids bank conflicts
  static constexpr int score_stride = size + 1;
  static constexpr std::int64_t shared_bytes =
      4 * (4 * size * row_stride + 2 * size * score_stride + 2 * size);
};

// Loads rows [first, first + size), zero beyond the last one and beyond `channels`.
template <int D>
__device__ void load_rows(const float* from, std::int64_t stride, int first, int count,
                          int channels, float* into) {
  using S = FloatBackward<D>;
  for (int i = static_cast<int>(threadIdx.x); i < S::size * D; i += S::threads) {
    const int row = i / D, c = i % D;
    const bool there = first + row < count && c < channels;
    into[row * S::row_stride + c] = there ? from[(first + row) * stride + c] : 0.0F;
  }
}

template <int D, bool of_keys>
__global__ void __launch_bounds__(128, 5) attend_backward_float(BackwardArguments<float> p) {
  using S = FloatBackward<D>;
  constexpr int held = D / S::lanes;  // channels of a row that a thread holds
  const int x = static_cast<int>(threadIdx.x) % S::lanes,
            y = static_cast<int>(threadIdx.x) / S::lanes;
  const BackwardBlock block(p, S::size, of_keys);

  constexpr int matrix = S::size * S::row_stride, scores = S::size * S::score_stride;
  auto* own = shared_memory<float>();
  float* own_factor = own + matrix;
  float* other = own_factor + matrix;
  float* other_factor = other + matrix;
  float* weights = other_factor + matrix;  // [own row, other row]
  float* d_scores = weights + scores;
  float* logarithms = d_scores + scores;  // of the queries: own or other rows
  float* deltas = logarithms + S::size;
  const auto load_queries = [&](int first) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < S::size && first + i < block.queries) {
      logarithms[i] = p.log_sum_exp[block.first_query + first + i];
      deltas[i] = p.delta[block.first_query + first + i];
    }
  };

  load_rows<D>(p.own + block.own, block.stride, block.first, p.own_tokens, p.channels, own);
  load_rows<D>(p.own_factor + block.own, block.stride, block.first, p.own_tokens, p.channels,
               own_factor);
  if (!of_keys) load_queries(block.first);
  float d_own[S::rows][held] = {}, d_factor[S::rows][held] = {};

  for (int first = 0; first < p.other_tokens; first += S::size) {
    __syncthreads();  // all threads have used the previous tile
    load_rows<D>(p.other + block.other, block.stride, first, p.other_tokens, p.channels, other);
    load_rows<D>(p.other_factor + block.other, block.stride, first, p.other_tokens, p.channels,
                 other_factor);
    if (of_keys) load_queries(first);
    __syncthreads();
    float score[S::rows][S::columns] = {}, d_weight[S::rows][S::columns] = {};
    for (int c = 0; c < D; ++c) {
      for (int j = 0; j < S::columns; ++j) {
        const int at = (x + j * S::lanes) * S::row_stride + c;
        const float b = other[at], b_factor = other_factor[at];
        for (int i = 0; i < S::rows; ++i) {
          const int row = (S::rows * y + i) * S::row_stride + c;
          score[i][j] = fmaf(own[row], b, score[i][j]);
          d_weight[i][j] = fmaf(own_factor[row], b_factor, d_weight[i][j]);
        }
      }
    }
    for (int i = 0; i < S::rows; ++i) {
      for (int j = 0; j < S::columns; ++j) {
        const int row = S::rows * y + i, other_row = x + j * S::lanes;
        const int query = of_keys ? other_row : row;
        const bool there = block.first + row < p.own_tokens && first + other_row < p.other_tokens;
        float weight = 0, d_score = 0;
        if (there) {
          weight = ops::exp2_approx(fmaf(score[i][j], p.log2_unit, -logarithms[query]));
          d_score = weight * (d_weight[i][j] - deltas[query]);
        }
        weights[row * S::score_stride + other_row] = weight;
        d_scores[row * S::score_stride + other_row] = d_score;
      }
    }
    __syncthreads();
    for (int k = 0; k < S::size; ++k) {
      for (int u = 0; u < held; ++u) {
        const int at = k * S::row_stride + x + u * S::lanes;
        const float b = other[at], b_factor = other_factor[at];
        for (int i = 0; i < S::rows; ++i) {
          const int score_at = (S::rows * y + i) * S::score_stride + k;
          d_own[i][u] = fmaf(d_scores[score_at], b, d_own[i][u]);
          if (of_keys) d_factor[i][u] = fmaf(weights[score_at], b_factor, d_factor[i][u]);
        }
      }
    }
  }

  for (int i = 0; i < S::rows; ++i) {
    const int row = block.first + S::rows * y + i;
    if (row >= p.own_tokens) continue;
    for (int u = 0; u < held; ++u) {
      const int c = x + u * S::lanes;
      if (c >= p.channels) continue;
      const std::int64_t at = block.own + std::int64_t{row} * block.stride + c;
      p.d_own[at] = p.scale * d_own[i][u];
      if (of_keys) p.d_own_factor[at] = d_factor[i][u];
    }
  }
}

}  // namespace reelmesh::gpu
