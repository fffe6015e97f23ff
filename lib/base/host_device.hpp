#pragma once

// Marks functions that host code and kernels share: index maths and scalar arithmetic.
#ifdef __CUDACC__
#define REELMESH_HOST_DEVICE __host__ __device__
#else
#define REELMESH_HOST_DEVICE
#endif
