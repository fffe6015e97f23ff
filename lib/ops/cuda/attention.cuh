#pragma once
// Shared by the attention kernels. They loop over the keys in tiles at fixed global positions. The
// maximum score, the sum of weights and the weighted sum of values of each query are carried from
// tile to tile in registers, and from one add() to the next in memory. So a query's bits depend
// only on the query and on all keys in their order.
#include "tensor/cuda/kernel.cuh"

namespace reelmesh::gpu {

struct AttentionArguments {
  const void *queries, *keys, *values;  ///< the first row of sequence 0, batch item 0, head 0
  std::int64_t query_row, query_batch;  ///< strides in elements; heads are contiguous
  std::int64_t key_row, key_batch;
  float* total;          ///< [sequence·query, batch, head, channel]
  float *largest, *sum;  ///< [sequence·batch·head, query]
  const float* bias;     ///< [head, query, bias_keys], at the first of these keys; or null
  std::int64_t bias_keys;
  int query_count, key_count;  ///< of one sequence; key_count: keys of this add()
  int batch, heads, channels;
  float scale;      ///< positive
  float log2_unit;  ///< attend_half: what its scores, to which any bias is added, are multiplied by
                    ///< to be binary logarithms. A parameter, since registers are scarce.
  bool first;       ///< first add(): total, largest and sum are not initialised yet
  bool aligned;     ///< rows of keys and values start at multiples of 8 elements and 16 bytes
};

/// The queries, sequence, batch item and head that a thread block computes.
struct AttentionBlock {
  int first, pair, sequence, item, head;
  int row;  ///< sequence · query_count · batch + item; stored to save registers
  __device__ AttentionBlock(const AttentionArguments& p, int rows) {
    const int tiles = (p.query_count + rows - 1) / rows;
    first = static_cast<int>(blockIdx.x) % tiles * rows;
    pair = static_cast<int>(blockIdx.x) / tiles;
    sequence = pair / p.heads / p.batch;
    item = pair / p.heads % p.batch;
    head = pair % p.heads;
    row = sequence * p.query_count * p.batch + item;
  }
  /// Offset of the first row of this sequence, item and head; count: rows of a sequence.
  __device__ std::int64_t start(const AttentionArguments& p, int count, std::int64_t stride,
                                std::int64_t batch) const {
    return std::int64_t{sequence} * count * stride + item * batch + std::int64_t{head} * p.channels;
  }
  /// Offset of a query in `total`.
  __device__ std::int64_t total(const AttentionArguments& p, int query) const {
    return ((std::int64_t{query} * p.batch + row) * p.heads + head) * p.channels;
  }
  __device__ std::int64_t state(const AttentionArguments& p, int query) const {
    return std::int64_t{pair} * p.query_count + query;
  }
  __device__ const float* bias(const AttentionArguments& p, int query) const {
    return p.bias + (std::int64_t{head} * p.query_count + query) * p.bias_keys;
  }
};

constexpr float lowest = -INFINITY;
constexpr float log2_e = 1.44269504088896341F;

}  // namespace reelmesh::gpu
