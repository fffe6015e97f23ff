#pragma once
#include "ops/attention_work.hpp"
#include "ops/cuda/timing.hpp"

namespace reelmesh::gpu {

/// Why the cuDNN library has no fused attention that can be used; empty if it has.
const std::string& why_no_fused_attention();

/// Whether fused_attention supports these. The answer depends only on the cuDNN library, the kind
/// of device and arguments that are equal in all layouts, so it is the same on all ranks.
bool has_fused_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels);

/// Whether half of the queries and some of the heads have the bits that they have among all:
/// computed once, on numbers of its own; requires has_fused_attention. If not, a warning says that
/// own kernels are used. True if it cannot be tried, for instance for lack of memory.
bool fused_attention_keeps_bits(Device device, DType dtype, std::int64_t keys,
                                std::int64_t channels);

/// Measures cuDNN's deterministic engines for attention to this many keys, once; requires
/// has_fused_attention. Returns the fastest for use_fused_attention() on all ranks; with
/// `reproducible` of those that have the bits of the reference (the first that cuDNN proposes) for
/// all, some and few queries and heads. Empty if they cannot be measured, for instance for lack of
/// memory.
std::string fastest_fused_attention(Device device, DType dtype, std::int64_t keys,
                                    std::int64_t channels, bool reproducible);
/// Uses that engine from now on; empty: the reference.
void use_fused_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels,
                         const std::string& choice);
/// Measures all engines that fused_attention() can use on calls of this shape, the reference first;
/// none if that does not support the shape. For benchmarks.
std::vector<EngineTiming> time_fused_attention(Device device, const ops::AttentionShape& shape);

/// Whether fused_attention() can also write logarithms of sums, for at least 16 queries; otherwise
/// as has_fused_attention().
bool has_fused_sums(Device device, DType dtype, std::int64_t keys, std::int64_t channels);

/// Makes the plan for calls of fused_attention with one tensor of queries and one of keys and
/// values, of this shape; requires has_fused_attention. Throws Error(unavailable) if the engine
/// does not support it.
void prepare_fused_attention(Device device, const ops::AttentionShape& shape);

/// out ← softmax(scale·q·kᵀ)·v by cuDNN's fused kernel; requires has_fused_attention. keys, values:
/// all keys, in one tensor or in two with the same strides; out: [sequence · query, batch, head,
/// channel], at least one query and head. The kernel depends on the numbers of keys and channels,
/// not on those of queries, heads and batch items; it processes the keys in their order. Throws
/// Error(unavailable) if its engine does not support these shapes. sums: null, or float32 [sequence
/// · batch · head, query] for ln(Σ exp(scale·q·k)) over the keys; requires has_fused_sums, whose
/// engine is always cuDNN's first.
void fused_attention(const ops::Rows& queries, const ops::Rows& keys, const ops::Rows& values,
                     float scale, Tensor& out, Tensor* sums = nullptr);

}  // namespace reelmesh::gpu
