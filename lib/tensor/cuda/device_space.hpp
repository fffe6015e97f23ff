#pragma once
#include "tensor/device_space.hpp"

namespace reelmesh::cuda {

DeviceSpace space(Device device);  ///< as device_space()

}  // namespace reelmesh::cuda
