#pragma once
// What the kernels of attention share. Both go over the keys in tiles at fixed global places, with
// the largest score, the sum of weights and the weighted values of each query carried from tile to
// tile, and through memory from addition to addition: a query's bits depend on itself and on all
// keys in their order, and on nothing else.
#include "tensor/cuda/kernel.cuh"

namespace reelmesh::gpu {

struct AttentionArguments {
  const void *queries, *keys, *values;  ///< the first row of sequence 0, batch item 0, head 0
  std::int64_t query_row, query_batch;  ///< from row to row, from item to item; heads are dense
  std::int64_t key_row, key_batch;
  float* total;          ///< [sequence·query, batch, head, channel]
  float *largest, *sum;  ///< [sequence·batch·head, query]
  const float* bias;     ///< [head, query, bias_keys], the first of these keys; or null
  std::int64_t bias_keys;
  int query_count, key_count;  ///< of one sequence; key_count: of this addition
  int batch, heads, channels;
  float scale;
  bool first;    ///< the first addition: nothing in memory yet
  bool aligned;  ///< rows are whole packs at aligned addresses
};

/// Which queries of which sequence, batch item and head a block has.
struct AttentionPlace {
  int first, pair, sequence, item, head;
  int row;  ///< query · batch + item in `total` of the sequence's first query: spares registers
  __device__ AttentionPlace(const AttentionArguments& p, int rows) {
    const int tiles = (p.query_count + rows - 1) / rows;
    first = static_cast<int>(blockIdx.x) % tiles * rows;
    pair = static_cast<int>(blockIdx.x) / tiles;
    sequence = pair / p.heads / p.batch;
    item = pair / p.heads % p.batch;
    head = pair % p.heads;
    row = sequence * p.query_count * p.batch + item;
  }
  /// Of the first of so many rows of this sequence, item and head.
  __device__ std::int64_t start(const AttentionArguments& p, int count, std::int64_t stride,
                                std::int64_t batch) const {
    return std::int64_t{sequence} * count * stride + item * batch + std::int64_t{head} * p.channels;
  }
  /// Of the numbers of one query in `total`.
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

}  // namespace reelmesh::gpu
