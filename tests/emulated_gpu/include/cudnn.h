#pragma once
// Only the version of cuDNN: on the emulated GPU convolve.cpp and fused_attention.cpp replace the
// code that uses cuDNN.
#include <cstddef>

std::size_t cudnnGetVersion();
