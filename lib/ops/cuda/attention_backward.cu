// Gradients of attention. All arithmetic is in float32 without tensor cores. One kernel computes
// the gradients of keys and values, in a loop over the queries in order; the other one those of
// queries, in a loop over the keys. So a head's bits depend only on its own values.
#include "ops/attention_backward.hpp"
#include "ops/cuda/attention.cuh"
#include "ops/cuda/ops.hpp"
#include "ops/math.hpp"

namespace reelmesh::gpu {
namespace {

// All matrices: [sequence, token, head, channel], with the heads of all batch items. A block
// computes one tile of own rows of a pair, a sequence and a head, and loops over all tiles of the
// other rows.
template <class T>
struct BackwardArguments {
  const T *own, *own_factor;         // keys and values, or queries and d_out
  const T *other, *other_factor;     // queries and d_out, or keys and values
  const float *log_sum_exp, *delta;  // [pair, query]; delta: Σ d_out·out
  T* d_own;                          // gradient of own
  T* d_own_factor;                   // of values; null if own rows are queries
  int own_tokens, other_tokens;      // of a sequence
  int heads, channels;               // heads of all batch items
  float scale;
};

/// 8 × 16 threads (y, x): each computes `rows` rows from rows·y on and `columns` columns x, x + 16
/// of a tile of scores, and channels x, x + 16, … of the gradients. D: channels, rounded up to 64
/// or 128.
template <int D>
struct BackwardTile {
  static constexpr int threads = 128, lanes = 16;
  static constexpr int size = D <= 64 ? 32 : 16;
  static constexpr int rows = size / 8, columns = size / lanes;
  static constexpr int row_stride = D + 1;  // avoids bank conflicts
  static constexpr int score_stride = size + 1;
  static constexpr std::int64_t shared_bytes =
      4 * (4 * size * row_stride + 2 * size * score_stride + 2 * size);
};

// Loads rows [first, first + size), zero beyond the last one and beyond `channels`.
template <class T, int D>
__device__ void load_rows(const T* from, std::int64_t stride, int first, int count, int channels,
                          float* into) {
  using S = BackwardTile<D>;
  for (int i = static_cast<int>(threadIdx.x); i < S::size * D; i += S::threads) {
    const int row = i / D, c = i % D;
    const bool there = first + row < count && c < channels;
    into[row * S::row_stride + c] = there ? widen(from[(first + row) * stride + c]) : 0.0F;
  }
}

template <class T, int D, bool of_keys>
__global__ void __launch_bounds__(128) attend_backward(BackwardArguments<T> p) {
  using S = BackwardTile<D>;
  constexpr int held = D / S::lanes;  // channels of a row that a thread holds
  const int x = static_cast<int>(threadIdx.x) % S::lanes,
            y = static_cast<int>(threadIdx.x) / S::lanes;
  const int tiles = (p.own_tokens + S::size - 1) / S::size;
  const int first_own = static_cast<int>(blockIdx.x) % tiles * S::size;
  const std::int64_t pair = static_cast<int>(blockIdx.x) / tiles;
  const std::int64_t stride = std::int64_t{p.heads} * p.channels;
  const std::int64_t sequence = pair / p.heads, column = pair % p.heads * p.channels;
  const std::int64_t own_start = sequence * p.own_tokens * stride + column;
  const std::int64_t other_start = sequence * p.other_tokens * stride + column;
  const int queries = of_keys ? p.other_tokens : p.own_tokens;
  const float* log_sum_exp = p.log_sum_exp + pair * queries;
  const float* delta = p.delta + pair * queries;

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
    if (i < S::size && first + i < queries) {
      logarithms[i] = log_sum_exp[first + i];
      deltas[i] = delta[first + i];
    }
  };

  load_rows<T, D>(p.own + own_start, stride, first_own, p.own_tokens, p.channels, own);
  load_rows<T, D>(p.own_factor + own_start, stride, first_own, p.own_tokens, p.channels,
                  own_factor);
  if (!of_keys) load_queries(first_own);
  float d_own[S::rows][held] = {}, d_factor[S::rows][held] = {};

  for (int first = 0; first < p.other_tokens; first += S::size) {
    __syncthreads();  // all threads have used the previous tile
    load_rows<T, D>(p.other + other_start, stride, first, p.other_tokens, p.channels, other);
    load_rows<T, D>(p.other_factor + other_start, stride, first, p.other_tokens, p.channels,
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
        const bool there = first_own + row < p.own_tokens && first + other_row < p.other_tokens;
        float weight = 0, d_score = 0;
        if (there) {
          weight = ops::exp2_approx(fmaf(score[i][j], p.scale * log2_e, -logarithms[query]));
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
    const int row = first_own + S::rows * y + i;
    if (row >= p.own_tokens) continue;
    for (int u = 0; u < held; ++u) {
      const int c = x + u * S::lanes;
      if (c >= p.channels) continue;
      p.d_own[own_start + row * stride + c] = narrow<T>(p.scale * d_own[i][u]);
      if (of_keys) p.d_own_factor[own_start + row * stride + c] = narrow<T>(d_factor[i][u]);
    }
  }
}

constexpr int rows_of_block = 8;  // one row per warp

// Σ x·y of each row; x, y: [sequence, token, head, channel]. → [sequence, head, token].
template <class T>
__global__ void __launch_bounds__(rows_of_block* warp_size)
    dot_rows(const T* x, const T* y, float* out, std::int64_t rows, int tokens, int heads,
             int channels) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t row =
      std::int64_t{blockIdx.x} * rows_of_block + static_cast<int>(threadIdx.x) / warp_size;
  if (row >= rows) return;
  float sum = 0;
  for (int c = lane; c < channels; c += warp_size) {
    sum = fmaf(widen(x[row * channels + c]), widen(y[row * channels + c]), sum);
  }
  sum = warp_sum(sum);
  const std::int64_t token = row / heads, pair = token / tokens * heads + row % heads;
  if (lane == 0) out[pair * tokens + token % tokens] = sum;
}

}  // namespace

void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                        const ops::AttentionForward& forward, const Tensor& d_out, float scale,
                        std::int64_t sequences, ops::AttentionGradients& gradients) {
  const Device device = q.device();
  const int queries = static_cast<int>(q.shape(0) / sequences),
            keys = static_cast<int>(k.shape(0) / sequences),
            channels = static_cast<int>(q.shape(3)),
            heads = static_cast<int>(q.shape(1) * q.shape(2));
  Tensor delta = Tensor::empty(forward.log_sum_exp.shape(), DType::float32, device);
  visit_float(q.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto at = [&](const Tensor& x) { return address<T>(x, device); };
    launch({"products with the gradient", device, blocks_for(q.numel() / channels, rows_of_block),
            rows_of_block * warp_size},
           dot_rows<T>, at(d_out), at(forward.out), address<float>(delta, device),
           q.numel() / channels, queries, heads, channels);
    const auto run = [&](auto head) {
      constexpr int D = decltype(head)::value;
      using S = BackwardTile<D>;
      BackwardArguments<T> p{at(k),
                             at(v),
                             at(q),
                             at(d_out),
                             address<float>(forward.log_sum_exp, device),
                             address<float>(delta, device),
                             address<T>(gradients.k, device),
                             address<T>(gradients.v, device),
                             keys,
                             queries,
                             heads,
                             channels,
                             scale};
      const std::int64_t pairs = sequences * heads;
      launch({"gradients of keys", device, blocks_for(keys, S::size) * pairs, S::threads,
              S::shared_bytes},
             attend_backward<T, D, true>, p);
      std::swap(p.own, p.other);
      std::swap(p.own_factor, p.other_factor);
      std::swap(p.own_tokens, p.other_tokens);
      p.d_own = address<T>(gradients.q, device);
      p.d_own_factor = nullptr;
      launch({"gradients of queries", device, blocks_for(queries, S::size) * pairs, S::threads,
              S::shared_bytes},
             attend_backward<T, D, false>, p);
    };
    if (channels <= 64) {
      run(std::integral_constant<int, 64>());
    } else {
      run(std::integral_constant<int, 128>());
    }
  });
}

}  // namespace reelmesh::gpu
