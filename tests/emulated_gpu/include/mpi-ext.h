#pragma once
// An MPI library that says whether it takes addresses of the emulated GPUs' memory: where the
// environment has REELMESH_EMULATED_CUDA_AWARE_MPI=1.
#define MPIX_CUDA_AWARE_SUPPORT 1

int MPIX_Query_cuda_support();
