#pragma once
// The memory of a device beside what tensors take of it.
#include "tensor/device.hpp"

namespace reelmesh {

/// Bytes of a device; zeros for the host. What is free of it: unused_device_memory().
struct DeviceSpace {
  std::int64_t total = 0;
  std::int64_t pooled = 0;  ///< kept by this process for tensors to come
};
DeviceSpace device_space(Device device);

/// Returns to the device what this process keeps for tensors to come. Does nothing for the host.
void release_pooled_memory(Device device);

}  // namespace reelmesh
