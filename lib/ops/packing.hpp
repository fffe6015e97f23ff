#pragma once
// Sizes of packed weights, for plans: before anything is packed, and without packing it.
#include <string>

#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// oneDNN packs weights as the kernels of a processor want them, which differ in how they fill up
/// rows and columns.
enum class PackedFor {
  this_processor,  ///< as oneDNN packs them here; the same as any_processor for types that products
                   ///< are not computed in here (compute_dtype)
  any_processor,   ///< the most that a known packing takes
};

/// A matrix [k, n] of a product of tiles.
std::int64_t packed_matrix_bytes(std::int64_t k, std::int64_t n, DType products, PackedFor target);

/// The weights of a Linear: in the order of the products, in the type of the tensors.
std::int64_t packed_linear_bytes(std::int64_t in, std::int64_t out, DType tensors, DType products,
                                 PackedFor target);

/// The weights of a Convolution, as its constructor takes them.
std::int64_t packed_convolution_bytes(const Shape& weight, DType products, PackedFor target);

/// The keys and values that Attention packs for one pair of a batch item and a head, where so many
/// keys of a sequence come at once.
std::int64_t packed_attention_bytes(std::int64_t keys, std::int64_t channels, DType products,
                                    PackedFor target);

/// What the size of packed weights depends on: oneDNN, the instructions that it uses, and caches.
/// Processors with equal texts pack in the same way.
std::string packing_of_this_processor();

}  // namespace reelmesh::ops
