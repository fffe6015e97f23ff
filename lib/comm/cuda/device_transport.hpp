#pragma once
// Transports of device tensors between ranks. Uses no CUDA types, so that builds without CUDA can
// include this header.
#include <memory>

#include "comm/group.hpp"

namespace reelmesh::comm {

/// The transport that Group::use_device() describes, not yet connected. Every rank of the group has
/// a GPU. Collective.
std::shared_ptr<DeviceTransport> make_device_transport(const Group& group, Device device,
                                                       Transport transport, double seconds);

/// Through MPI, by pinned host memory.
std::shared_ptr<DeviceTransport> make_mpi_transport(Device device);

/// Through NCCL, with a communicator for each group that is connected. seconds: time-out.
std::shared_ptr<DeviceTransport> make_nccl_transport(Device device, double seconds);

/// Why this process cannot use NCCL; empty if it can.
std::string why_no_nccl();

}  // namespace reelmesh::comm
