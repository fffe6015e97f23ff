#pragma once
// Of cuDNN only its version: convolve.cpp and fused_attention.cpp of the emulated GPU stand in for
// its uses.
#include <cstddef>

std::size_t cudnnGetVersion();
