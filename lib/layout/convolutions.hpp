#pragma once
// Convolutions on GPUs of several ranks have the same bits.
#include <span>

#include "comm/group.hpp"
#include "tensor/ledger.hpp"
#include "tensor/numerics.hpp"

namespace reelmesh {

/// All ranks use the algorithms that the first one takes for these convolutions, the same list on
/// all ranks; where one of them cannot run on some rank, the next. Before, a rank that lacked
/// something (libnvrtc, memory) silently took another algorithm, with other bits. Does nothing on
/// CPUs. Error(unavailable) if none runs on all ranks. Collective.
void agree_on_convolutions(const comm::Group& group, Device device,
                           std::span<const ConvolutionShape> shapes, const Numerics& numerics);

}  // namespace reelmesh
