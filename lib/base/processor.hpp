#pragma once
// The kind of processor that the program is compiled for, and what the one that runs it is. What
// only x86 has stands behind this file, clones.hpp, tensor/narrow.hpp and ops/amx.hpp; elsewhere no
// source asks for the kind.

#if defined(__x86_64__)
#define REELMESH_WITH_FMA __attribute__((target("avx2,fma")))
#else
#define REELMESH_WITH_FMA
#endif

namespace reelmesh {

#if defined(__x86_64__)
inline constexpr bool on_x86 = true;
#else
inline constexpr bool on_x86 = false;
#endif

/// Whether functions marked REELMESH_WITH_FMA, in which std::fma is one instruction, can be called.
bool has_fma();

/// Whether it is one of AMD's.
bool is_amd();

}  // namespace reelmesh
