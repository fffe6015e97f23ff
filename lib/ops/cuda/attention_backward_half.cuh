#pragma once
// Gradients of attention in bfloat16 and float16 on tensor cores (Dao 2023, FlashAttention-2). A
// warp keeps its own rows and the sums of their gradients in registers, where scores become the
// left operands of the next products. Products of 16-bit values are added in float32, in steps of
// 16 other rows.
#include "ops/cuda/attention_backward.cuh"
#include "ops/cuda/tensor_cores.cuh"

namespace reelmesh::gpu {

/// What a kernel computes. Keys and values of many channels each have one, for lack of registers.
enum class Gradients { of_keys_and_values, of_keys, of_values, of_queries };

/// Four warps with 16·M own rows each. Tiles of other rows are copied to shared memory while the
/// previous one is used; a warp takes `columns` of these rows at a time. D: channels, rounded up to
/// a multiple of 16.
template <int D, int M, Gradients G>
struct HalfBackward {
  static constexpr bool of_keys = G != Gradients::of_queries;  ///< own rows are keys and values
  static constexpr bool own = G != Gradients::of_values;       ///< gradients of own are computed
  static constexpr bool factor = G == Gradients::of_keys_and_values || G == Gradients::of_values;
  static constexpr int threads = 128, warp_rows = 16 * M, rows = 4 * warp_rows;
  static constexpr int tile = D <= 80 ? 64 : 32;
  static constexpr int columns = of_keys || D * M >= 128 ? 16 : 32;  // as registers allow
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  static constexpr int blocks = 1;
#else
  /// Of a multiprocessor: ptxas keeps enough registers free for them.
  static constexpr int blocks = D <= 64 && M == 1 ? 3 : 1;
#endif
  static constexpr int row_stride = half_row_stride<D>, matrix = tile * row_stride;
  static constexpr int stages = 2;
  /// Two matrices in each stage, and two numbers of each row.
  static constexpr std::int64_t shared_bytes = std::int64_t{2} * stages * (2 * matrix + 4 * tile);
  // The own rows pass through the same memory.
  static_assert(2 * rows <= 2 * stages * tile && tile % columns == 0 && threads >= tile);
};

/// The powers of two by which weights and gradients of scores are multiplied before they are
/// rounded to T. float16 has no numbers below 2⁻²⁴, and gradients may all be smaller.
template <class T>
struct HalfScale {
  static constexpr bool needed = std::is_same_v<T, Float16>;
  static constexpr float exponent = needed ? 15 : 0;         ///< of weights, which are at most 1
  static constexpr float of_weights = needed ? 0x1p15F : 1;  ///< 2^exponent
  static constexpr float initial = needed ? 0x1p100F : 1;    ///< of gradients of scores
  /// Gradients of scores up to `largest`, a normal number, then lie below 2¹⁵.
  __device__ static float below(float largest) {
    std::uint32_t bits = 0;
    memcpy(&bits, &largest, sizeof bits);
    bits &= 0x7f800000U;  // without the mantissa: a power of two
    float power = 0;
    memcpy(&power, &bits, sizeof bits);
    return 0x1p14F / power;
  }
};

template <class T, int D, int M, Gradients G>
__global__ void __launch_bounds__(128, HalfBackward<D, M, G>::blocks)
    attend_backward_half(BackwardArguments<T> p) {
  using S = HalfBackward<D, M, G>;
  using Scale = HalfScale<T>;
  constexpr int tile = S::tile, columns = S::columns, stride = S::row_stride;
  constexpr bool of_keys = S::of_keys;
  const BackwardBlock block(p, S::rows, of_keys);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp_size;
  const int g = lane / 4, t = lane % 4;
  const int warp_first = thread / warp_size * S::warp_rows;
  auto* tiles = shared_memory<T>();  // [stage][other, other_factor][row]
  // [stage][row][2]: logarithm and delta of queries that are other rows
  auto* numbers = reinterpret_cast<float*>(tiles + 2 * S::stages * S::matrix);

  // Own rows as left operands.
  std::uint32_t own[M][D / 16][4], own_factor[M][D / 16][4];
  const auto load_own = [&](const T* from, T* into) {
    load_half_rows<D, S::rows, S::threads, 1>(from + block.own, block.stride, block.first,
                                              p.own_tokens, p.channels, p.aligned, into);
  };
  load_own(p.own, tiles);
  if (S::own) load_own(p.own_factor, tiles + S::rows * stride);
  wait_copies<0>();
  __syncthreads();
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      const T* from = tiles + (warp_first + 16 * m + lane % 16) * stride + 16 * k + lane / 16 * 8;
      load_matrices(own[m][k], from);
      if (S::own) load_matrices(own_factor[m][k], from + S::rows * stride);
    }
  }
  // A lane holds own rows h = 0, 1 of each 16. Rows beyond the last have scores of 0, and their
  // results are not stored.
  const auto own_row = [&](int m, int h) { return block.first + warp_first + 16 * m + g + 8 * h; };
  float logarithm[M][2] = {}, delta[M][2] = {}, d_scale[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      d_scale[m][h] = Scale::initial;
      if (of_keys || own_row(m, h) >= p.own_tokens) continue;
      logarithm[m][h] = p.log_sum_exp[block.first_query + own_row(m, h)] - Scale::exponent;
      delta[m][h] = p.delta[block.first_query + own_row(m, h)];
    }
  }

  const auto load_tile = [&](int first, int stage) {
    T* into = tiles + 2 * stage * S::matrix;
    const auto load = [&](const T* from, T* to) {
      load_half_rows<D, tile, S::threads, 1>(from + block.other, block.stride, first,
                                             p.other_tokens, p.channels, p.aligned, to);
    };
    load(p.other, into);
    load(p.other_factor, into + S::matrix);
  };
  float next_logarithm = 0, next_delta = 0;  // of a query of the tile that is being copied
  const auto load_query = [&](int first) {
    if (!of_keys || thread >= tile) return;
    // Queries beyond the last have no weight.
    const bool there = first + thread < p.other_tokens;
    next_logarithm =
        there ? p.log_sum_exp[block.first_query + first + thread] - Scale::exponent : INFINITY;
    next_delta = there ? p.delta[block.first_query + first + thread] : 0.0F;
  };

  float d_own[M][D / 8][4] = {}, d_factor[M][D / 8][4] = {};
  __syncthreads();  // all threads have their own rows
  load_tile(0, 0);
  load_query(0);
  for (int first = 0, stage = 0; first < p.other_tokens; first += tile, stage = 1 - stage) {
    if (of_keys && thread < tile) {
      numbers[2 * (stage * tile + thread)] = next_logarithm;
      numbers[2 * (stage * tile + thread) + 1] = next_delta;
    }
    wait_copies<0>();
    __syncthreads();  // the tile has arrived, and all threads have used the previous one
    if (first + tile < p.other_tokens) {
      load_tile(first + tile, 1 - stage);
      load_query(first + tile);
    }
    const T* other = tiles + 2 * stage * S::matrix;
    const T* other_factor = other + S::matrix;
#pragma unroll 1
    for (int part = 0; part < tile && first + part < p.other_tokens; part += columns) {
      float score[M][columns / 8][4] = {}, d_score[M][columns / 8][4] = {};
#pragma unroll
      for (int k = 0; k < D / 16; ++k) {
#pragma unroll
        for (int n = 0; n < columns / 8; n += 2) {
          const int at =
              (part + 8 * n + lane / 16 * 8 + lane % 8) * stride + 16 * k + lane / 8 % 2 * 8;
          std::uint32_t b[4];
          load_matrices(b, other + at);
#pragma unroll
          for (int m = 0; m < M; ++m) {
            mma<T>(score[m][n], own[m][k], b[0], b[1]);
            mma<T>(score[m][n + 1], own[m][k], b[2], b[3]);
          }
          if (!S::own) continue;
          load_matrices(b, other_factor + at);
#pragma unroll
          for (int m = 0; m < M; ++m) {
            mma<T>(d_score[m][n], own_factor[m][k], b[0], b[1]);
            mma<T>(d_score[m][n + 1], own_factor[m][k], b[2], b[3]);
          }
        }
      }

      // Scores become weights, and gradients of weights those of scores.
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        float of_query[4] = {};  // logarithm and delta of the two other rows of this lane
        if (of_keys) load<4>(numbers + 2 * (stage * tile + part + 8 * n + 2 * t), of_query);
#pragma unroll
        for (int m = 0; m < M; ++m) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& s = score[m][n][i];
            // Keys beyond the last have no weight.
            if (!of_keys && first + part + 8 * n + 2 * t + i % 2 >= p.other_tokens) s = lowest;
            const float l = of_keys ? of_query[i % 2 * 2] : logarithm[m][i / 2];
            const float d = of_keys ? of_query[i % 2 * 2 + 1] : delta[m][i / 2];
            s = exp2_approx(fmaf(s, p.log2_unit, -l));
            if (S::own) d_score[m][n][i] = s * (d_score[m][n][i] - d);
          }
        }
      }
      if constexpr (Scale::needed && S::own) {
        // As the maximum in attention's forward pass: of the own row's gradients so far.
#pragma unroll
        for (int m = 0; m < M; ++m) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float largest = 0;
#pragma unroll
            for (int n = 0; n < columns / 8; ++n) {
              largest = fmaxf(largest,
                              fmaxf(fabsf(d_score[m][n][2 * h]), fabsf(d_score[m][n][2 * h + 1])));
            }
            largest = row_max(largest);
            if (largest * d_scale[m][h] >= 0x1p15F) {
              const float scale = Scale::below(largest), factor = scale / d_scale[m][h];
              d_scale[m][h] = scale;
#pragma unroll
              for (int n = 0; n < D / 8; ++n) {
                d_own[m][n][2 * h] *= factor;
                d_own[m][n][2 * h + 1] *= factor;
              }
            }
#pragma unroll
            for (int n = 0; n < columns / 8; ++n) {
              d_score[m][n][2 * h] *= d_scale[m][h];
              d_score[m][n][2 * h + 1] *= d_scale[m][h];
            }
          }
        }
      }

#pragma unroll
      for (int k = 0; k < columns / 16; ++k) {
        std::uint32_t weights[M][4], d_scores[M][4];
#pragma unroll
        for (int m = 0; m < M; ++m) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int n = 2 * k + i / 2, h = i % 2;
            if (S::factor) {
              weights[m][i] = packed_pair<T>(score[m][n][2 * h], score[m][n][2 * h + 1]);
            }
            if (S::own)
              d_scores[m][i] = packed_pair<T>(d_score[m][n][2 * h], d_score[m][n][2 * h + 1]);
          }
        }
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
          const int at =
              (part + 16 * k + lane / 8 % 2 * 8 + lane % 8) * stride + 8 * n + lane / 16 * 8;
          std::uint32_t b[4];
          if (S::own) {
            load_transposed(b, other + at);
#pragma unroll
            for (int m = 0; m < M; ++m) {
              mma<T>(d_own[m][n], d_scores[m], b[0], b[1]);
              mma<T>(d_own[m][n + 1], d_scores[m], b[2], b[3]);
            }
          }
          if (S::factor) {
            load_transposed(b, other_factor + at);
#pragma unroll
            for (int m = 0; m < M; ++m) {
              mma<T>(d_factor[m][n], weights[m], b[0], b[1]);
              mma<T>(d_factor[m][n + 1], weights[m], b[2], b[3]);
            }
          }
        }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (own_row(m, h) >= p.own_tokens) continue;
      const std::int64_t row = block.own + std::int64_t{own_row(m, h)} * block.stride;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int c = 8 * n + 2 * t + j;
          if (c >= p.channels) continue;
          if (S::own) {
            const float d = d_own[m][n][2 * h + j] / d_scale[m][h] / Scale::of_weights;
            p.d_own[row + c] = narrow<T>(p.scale * d);
          }
          if (S::factor) {
            p.d_own_factor[row + c] = narrow<T>(d_factor[m][n][2 * h + j] / Scale::of_weights);
          }
        }
      }
    }
  }
}

}  // namespace reelmesh::gpu
