#pragma once
// MPI extension that tells whether MPI is CUDA-aware, that is, accepts addresses of the emulated
// GPUs' memory: if the environment has REELMESH_EMULATED_CUDA_AWARE_MPI=1.
#define MPIX_CUDA_AWARE_SUPPORT 1

int MPIX_Query_cuda_support();
