#pragma once
// What matrix products, convolutions and attention of bfloat16 tensors are computed with on CPUs.
#include <string_view>

#include "tensor/numerics.hpp"

namespace reelmesh::ops {

/// Whether this processor's vectors have AVX-512, without which oneDNN has no bfloat16 products.
bool has_bfloat16_products();

/// Sets the choice for this process; called before layers are made. Products::automatic, which is
/// the initial one, is decided by the kind of processor and not by a measurement, so that the same
/// processor always gives the same bits: bfloat16 with AMX, and with AVX512_BF16 on AMD, where a
/// core multiplied bfloat16 at twice the rate of float32 (495 and 250 GFLOP/s). Intel's cores
/// without AMX were slower in bfloat16 than in float32 (96 and 150 GFLOP/s). With AMX, products and
/// attention are by kernels of our own (amx.hpp), convolutions by oneDNN; with AVX512_BF16 all are
/// by oneDNN. Products::bfloat16 needs has_bfloat16_products().
void choose_products(Products choice);

/// What the choice means on this processor: "float32", "bfloat16 (AMX)", "bfloat16 (AVX512_BF16)"
/// or "bfloat16 (AVX-512)". Processors with unequal texts have unequal bits.
std::string_view bfloat16_products();

/// Of oneDNN's kernels on this processor, which ONEDNN_MAX_CPU_ISA may restrict: "AVX-512 with
/// AMX", "AVX-512 with BF16", "AVX-512", "AVX2" or "SSE4.1"; "as compiled" on other processors than
/// x86.
std::string_view vector_instructions();

/// Whether the processor or oneDNN lacks AVX2: without it many ops take several times as long, as
/// they are in plain C++, and oneDNN's kernels in shorter vectors.
bool lacks_avx2();

}  // namespace reelmesh::ops
