#pragma once
// Convolutions on GPUs of several ranks have the same bits.
#include <span>

#include "comm/group.hpp"
#include "tensor/ledger.hpp"
#include "tensor/numerics.hpp"

namespace reelmesh {

/// The first rank measures algorithms for these convolutions, the same list on all ranks, for about
/// 1.5 s in all (as measure_convolution). All ranks use those that it takes; where one of them
/// cannot run on some rank, the next. Does nothing on CPUs. Error(unavailable) if none runs on all
/// ranks. Collective.
void agree_on_convolutions(const comm::Group& group, Device device,
                           std::span<const ConvolutionShape> shapes, const Numerics& numerics);

}  // namespace reelmesh
