#pragma once
// What tensors need of the CUDA runtime: memory, copies and order. One stream a device: everything
// on it happens in the order in which the host asks for it. Names no type of CUDA, so that builds
// without it can include this.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tensor/device.hpp"
#include "tensor/dtype.hpp"

namespace reelmesh::cuda {

struct Devices {
  int count = 0;
  std::string why_none;  ///< where count is 0: no driver, no device, …
};
Devices devices();

std::string name(Device device);            ///< as name_of()
std::string bus(Device device);             ///< as bus_of()
std::string versions();                     ///< as cuda_versions()
DeviceMemory memory(Device device);         ///< as device_memory()
std::int64_t unused_memory(Device device);  ///< as unused_device_memory()

/// Uninitialised memory of the stream's present: those who use it later on the stream may. Counted
/// until its last owner is gone. Throws Error(unavailable) when the device has no more.
std::shared_ptr<const void> allocate(Device device, std::int64_t bytes, void** address);

/// Counts memory that something else than a tensor holds on the device, for as long as the result
/// is kept.
std::shared_ptr<const void> count(Device device, std::int64_t bytes);
/// Bytes at the largest moment since the last call, at least those of now.
std::int64_t peak_since_last(Device device);
/// Waits for the device, and gives back to it what freed tensors and graphs that are gone had.
void give_back_memory(Device device);

/// Fills device memory with what `fill` writes to pinned memory, in pieces that are multiples of
/// `unit` bytes, of which one is on its way while the next is written: fill(host, offset, count).
/// Error(internal) for units that are larger than a piece may be.
using Fill = std::function<void(void* host, std::int64_t offset, std::int64_t count)>;
void upload(Device device, void* into, std::int64_t bytes, std::int64_t unit, const Fill& fill);

/// Copies through pinned memory. to_device returns when `host` may change, to_host when it is
/// filled; on_device only asks for the copy.
void to_device(Device device, void* into, const void* host, std::int64_t bytes);
void to_host(Device device, void* host, const void* from, std::int64_t bytes);
void on_device(Device device, void* into, const void* from, std::int64_t bytes);
void fill_zero(Device device, void* into, std::int64_t bytes);
/// Waits for all that was asked for; errors of kernels show here at the latest.
void synchronize(Device device);

/// Called again and again while the host waits for a device, with the seconds that it has waited;
/// throws to end that. Set by those who ask a device for work that waits for other ranks.
inline void (*watch)(double seconds) = nullptr;

/// As reelmesh::convert, on the device.
void convert(Device device, const void* from, DType from_type, void* into, DType into_type,
             std::int64_t count);

}  // namespace reelmesh::cuda
