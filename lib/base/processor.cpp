#include "base/processor.hpp"

namespace reelmesh {

#if defined(__x86_64__)
bool has_fma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool is_amd() { return __builtin_cpu_is("amd"); }
#else
bool has_fma() { return true; }  // they are compiled for every processor of this kind
bool is_amd() { return false; }
#endif

}  // namespace reelmesh
