#pragma once

// Kernels marked so are compiled for several instruction sets and chosen when the program starts.
// Without floating-point contraction all of them give the same bits; std::fma is one instruction in
// all but the last (and right, but slow, there).
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define REELMESH_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define REELMESH_CLONES
#endif
