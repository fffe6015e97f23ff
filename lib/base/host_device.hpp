#pragma once

// Marks what the host and kernels share: index maths and the arithmetic of one number.
#ifdef __CUDACC__
#define REELMESH_HOST_DEVICE __host__ __device__
#else
#define REELMESH_HOST_DEVICE
#endif
