#pragma once

namespace reelmesh::comm {

/// How tensors of a device travel between ranks.
enum class Transport {
  automatic,
  nccl,  ///< from device to device by NCCL
  mpi,   ///< by MPI: through pinned memory of the host, unless the MPI library takes addresses of
         ///< devices
};
const char* name_of(Transport transport);  ///< "auto", "nccl", "mpi"

}  // namespace reelmesh::comm
