#pragma once
// Attention in bfloat16 and float16 on tensor cores (FlashAttention; Dao 2022, 2023). Scores are
// multiplied by log2(e), so that weights are powers of two.
#include "ops/cuda/attention.cuh"
#include "ops/cuda/tensor_cores.cuh"

namespace reelmesh::gpu {

/// Four warps with 16·M queries each loop over the keys in tiles of 64. D: channels, rounded up to
/// a multiple of 16.
template <int D, int M>
struct HalfAttention {
  static constexpr int threads = 128, tile = 64;
  static constexpr int warp_rows = 16 * M, rows = 4 * warp_rows;
  static constexpr int row_stride = half_row_stride<D>;
  static constexpr std::int64_t shared_bytes = std::int64_t{2} * 2 * tile * row_stride;
};

template <class T, int D, int M>
__global__ void __launch_bounds__(128) attend_half(AttentionArguments p) {
  using S = HalfAttention<D, M>;
  constexpr int tile = S::tile, stride = S::row_stride;
  const AttentionBlock own(p, S::rows);
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int g = lane / 4, t = lane % 4;
  const int warp_first = own.first + static_cast<int>(threadIdx.x) / warp_size * S::warp_rows;
  auto* key_tile = shared_memory<T>();
  T* value_tile = key_tile + tile * stride;
  const std::int64_t first_key = own.start(p, p.key_count, p.key_row, p.key_batch);
  const T* keys = static_cast<const T*>(p.keys) + first_key;
  const T* values = static_cast<const T*>(p.values) + first_key;
  const T* queries =
      static_cast<const T*>(p.queries) + own.start(p, p.query_count, p.query_row, p.query_batch);
  const auto load_rows = [&](const T* from, int first, T* into) {
    load_half_rows<D, tile, S::threads>(from, p.key_row, first, p.key_count, p.channels, p.aligned,
                                        into);
  };
  // A lane holds two of each 16 queries: index of its query h = 0, 1.
  const auto query_index = [&](int m, int h) { return warp_first + 16 * m + g + 8 * h; };

  load_rows(keys, 0, key_tile);

  std::uint32_t query[M][D / 16][4];
  for (int m = 0; m < M; ++m) {
    for (int h = 0; h < 2; ++h) {
      const int q = query_index(m, h);
      const T* row = queries + q * p.query_row;
      for (int k = 0; k < D / 8; ++k) {
        const int c = 8 * k + 2 * t;
        std::uint32_t pair = 0;
        if (q < p.query_count) {
          if (c < p.channels) pair = row[c].bits;
          if (c + 1 < p.channels) pair |= static_cast<std::uint32_t>(row[c + 1].bits) << 16;
        }
        query[m][k / 2][k % 2 * 2 + h] = pair;
      }
    }
  }
  float total[M][D / 8][4] = {}, largest[M][2], sum[M][2];
  for (int m = 0; m < M; ++m) {
    for (int h = 0; h < 2; ++h) {
      const int q = query_index(m, h);
      const bool kept = !p.first && q < p.query_count;
      largest[m][h] = kept ? p.largest[own.state(p, q)] : lowest;
      sum[m][h] = kept ? p.sum[own.state(p, q)] : 0.0F;
      if (!kept) continue;
      for (int n = 0; n < D / 8; ++n) {
        for (int j = 0; j < 2; ++j) {
          const int c = 8 * n + 2 * t + j;
          if (c < p.channels) total[m][n][2 * h + j] = p.total[own.total(p, q) + c];
        }
      }
    }
  }

  for (int first = 0; first < p.key_count; first += tile) {
    wait_copies<0>();
    __syncthreads();  // keys have arrived; all threads have used the previous values
    load_rows(values, first, value_tile);

    float score[M][tile / 8][4] = {};
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
#pragma unroll
      for (int n = 0; n < tile / 8; n += 2) {
        std::uint32_t b[4];
        load_matrices(
            b, key_tile + (8 * n + lane / 16 * 8 + lane % 8) * stride + 16 * k + lane / 8 % 2 * 8);
        for (int m = 0; m < M; ++m) {
          mma<T>(score[m][n], query[m][k], b[0], b[1]);
          mma<T>(score[m][n + 1], query[m][k], b[2], b[3]);
        }
      }
    }
    __syncthreads();  // all threads have used the keys
    if (first + tile < p.key_count) {
      load_rows(keys, first + tile, key_tile);
    } else {
      commit_copies();  // an empty group, so that there are always two
    }

    std::uint32_t weights[M][tile / 16][4];
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int q = query_index(m, h);
        float top = lowest;
#pragma unroll
        for (int n = 0; n < tile / 8; ++n) {
          for (int j = 0; j < 2; ++j) {
            float& s = score[m][n][2 * h + j];
            const int k = first + 8 * n + 2 * t + j;
            if (p.bias != nullptr && q < p.query_count && k < p.key_count) {
              s = fmaf(s, p.scale * log2_e, own.bias(p, q)[k] * log2_e);
            }
            if (k >= p.key_count) s = lowest;
            top = fmaxf(top, s);
          }
        }
        top = fmaxf(largest[m][h], row_max(top) * p.log2_unit);
        const float base = top == lowest ? 0.0F : top;  // all scores so far are −∞
        float block = 0;
#pragma unroll
        for (int n = 0; n < tile / 8; ++n) {
          float& a = score[m][n][2 * h];
          float& b = score[m][n][2 * h + 1];
          a = exp2_approx(fmaf(a, p.log2_unit, -base));
          b = exp2_approx(fmaf(b, p.log2_unit, -base));
          block += a + b;
          weights[m][n / 2][n % 2 * 2 + h] = packed_pair<T>(a, b);
        }
        const float factor = exp2_approx(largest[m][h] - base);
        // Reduced over the lanes in every tile, so the bits do not depend on where an add() ended.
        sum[m][h] = fmaf(sum[m][h], factor, row_sum(block));
        largest[m][h] = top;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          total[m][n][2 * h] *= factor;
          total[m][n][2 * h + 1] *= factor;
        }
      }
    }

    wait_copies<1>();
    __syncthreads();  // values have arrived
#pragma unroll
    for (int k = 0; k < tile / 16; ++k) {
#pragma unroll
      for (int n = 0; n < D / 8; n += 2) {
        std::uint32_t b[4];
        load_transposed(b, value_tile + (16 * k + lane / 8 % 2 * 8 + lane % 8) * stride + 8 * n +
                               lane / 16 * 8);
        for (int m = 0; m < M; ++m) {
          mma<T>(total[m][n], weights[m][k], b[0], b[1]);
          mma<T>(total[m][n + 1], weights[m][k], b[2], b[3]);
        }
      }
    }
  }

  for (int m = 0; m < M; ++m) {
    for (int h = 0; h < 2; ++h) {
      const int q = query_index(m, h);
      if (q >= p.query_count) continue;
      for (int n = 0; n < D / 8; ++n) {
        for (int j = 0; j < 2; ++j) {
          const int c = 8 * n + 2 * t + j;
          if (c < p.channels) p.total[own.total(p, q) + c] = total[m][n][2 * h + j];
        }
      }
      if (t == 0) {
        p.largest[own.state(p, q)] = largest[m][h];
        p.sum[own.state(p, q)] = sum[m][h];
      }
    }
  }
}

}  // namespace reelmesh::gpu
