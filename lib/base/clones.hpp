#pragma once

// Marks functions that are compiled for several instruction sets; one version is chosen when the
// program starts. Without floating-point contraction all versions give the same bits. std::fma is
// one instruction in all but the default version, where it is correct but slow.
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define REELMESH_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define REELMESH_CLONES
#endif
