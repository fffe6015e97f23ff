#pragma once
// Shared by the kernels of attention's gradients. A thread block computes one tile of own rows of a
// pair, a sequence and a head, and loops over the other rows in tiles at fixed positions: for the
// gradients of keys and values over all queries, for those of queries over all keys. So a head's
// bits depend only on its own values.
#include "ops/cuda/attention.cuh"

namespace reelmesh::gpu {

/// All matrices: [sequence, token, head, channel], with the heads of all batch items.
template <class T>
struct BackwardArguments {
  const T *own, *own_factor;         ///< keys and values, or queries and d_out
  const T *other, *other_factor;     ///< queries and d_out, or keys and values
  const float *log_sum_exp, *delta;  ///< [pair, query]; delta: Σ d_out·out
  T* d_own;                          ///< gradient of own
  T* d_own_factor;                   ///< of values; null if own rows are queries
  int own_tokens, other_tokens;      ///< of a sequence
  int heads, channels;               ///< heads of all batch items
  float scale;
  float log2_unit;  ///< scale·log2(e), which makes scores binary logarithms. A parameter, since
                    ///< registers are scarce.
  bool aligned;     ///< rows of all matrices start at multiples of 8 elements and 16 bytes
};

/// The own rows of a thread block, and where its pair begins.
struct BackwardBlock {
  int first;                 ///< own row
  int stride;                ///< of a row in all matrices
  std::int64_t own, other;   ///< offsets of the pair's first rows
  int queries;               ///< of a sequence
  std::int64_t first_query;  ///< of the pair, in log_sum_exp and delta
  template <class T>
  __device__ BackwardBlock(const BackwardArguments<T>& p, int rows, bool of_keys) {
    const int tiles = (p.own_tokens + rows - 1) / rows;
    first = static_cast<int>(blockIdx.x) % tiles * rows;
    const std::int64_t pair = static_cast<int>(blockIdx.x) / tiles;
    stride = p.heads * p.channels;
    const std::int64_t sequence = pair / p.heads, column = pair % p.heads * p.channels;
    own = sequence * p.own_tokens * stride + column;
    other = sequence * p.other_tokens * stride + column;
    queries = of_keys ? p.other_tokens : p.own_tokens;
    first_query = pair * queries;
  }
};

}  // namespace reelmesh::gpu
