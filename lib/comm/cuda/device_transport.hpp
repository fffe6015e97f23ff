#pragma once
// The ways of device tensors between ranks. Names no type of CUDA, so that builds without it can
// include this.
#include <memory>

#include "comm/group.hpp"

namespace reelmesh::comm {

/// As Group::use_device() says. Every rank of the group has a device. Collective.
std::shared_ptr<DeviceTransport> make_device_transport(const Group& group, Device device,
                                                       Transport transport, double seconds);

/// By MPI.
std::shared_ptr<DeviceTransport> make_mpi_transport(Device device);

/// By NCCL: its communicator is made here. Collective.
std::shared_ptr<DeviceTransport> make_nccl_transport(const Group& group, Device device,
                                                     double seconds);

/// Why this process cannot use NCCL; empty where it can.
std::string why_no_nccl();

}  // namespace reelmesh::comm
