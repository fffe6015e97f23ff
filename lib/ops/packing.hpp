#pragma once
// Sizes of packed weights, for memory plans: computed without packing anything.
#include <string>

#include "tensor/ledger.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// Bytes of a weight matrix [k, n] packed for a GEMM (TileProduct) with inputs of type `products`.
std::int64_t packed_matrix_bytes(std::int64_t k, std::int64_t n, DType products, PackedFor target);

/// Bytes, at most, of the sums that a thread keeps while it computes a Linear with AMX: those of
/// long inner dimensions. 0 for other types of products.
std::int64_t product_sums_bytes(std::int64_t in, DType products);

/// Bytes of the weight of a Convolution. weight: shape as its constructor takes it.
std::int64_t packed_convolution_bytes(const Shape& weight, DType products, PackedFor target);

/// Bytes of keys and values that Attention packs for one pair of batch item and head. keys: number
/// of keys of a sequence in one add().
std::int64_t packed_attention_bytes(std::int64_t keys, std::int64_t channels, DType products,
                                    PackedFor target);

/// Bytes of the sums that Attention keeps between calls of add() for the queries of one pair:
/// weighted values, and the largest score and the sum of weights of each query.
std::int64_t attention_sums_bytes(std::int64_t queries, std::int64_t channels, DType products,
                                  PackedFor target);

/// What packed sizes depend on: oneDNN's version, instruction set and cache sizes. Processors with
/// equal strings use the same packed layouts.
std::string packing_signature();

}  // namespace reelmesh::ops
