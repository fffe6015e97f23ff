#pragma once
#include <memory>

#include "base/device_spans.hpp"
#include "tensor/device.hpp"

namespace reelmesh::cuda {

/// The clock of a device's compute stream, by CUDA events. Times are those of now_ns() within the
/// time that an event takes to be recorded and seen by the host, some 10 µs, plus the difference
/// between the two clocks since compare(). Must not be used while the stream is capturing.
std::shared_ptr<trace::DeviceClock> stream_clock(Device device);

}  // namespace reelmesh::cuda
