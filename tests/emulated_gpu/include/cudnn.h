#pragma once
// Of cuDNN only its version: convolve.cpp of the emulated GPU stands in for its one use.
#include <cstddef>

std::size_t cudnnGetVersion();
