#pragma once
// Pending MPI requests, and the error check of MPI calls.
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reelmesh::comm {

/// Throws Error(internal) naming the call unless code is MPI_SUCCESS.
void check(int code, const char* call);
/// A count as an int, as MPI requires. Throws Error(internal) if it is too large.
int to_int(std::size_t n, const char* call);

/// Pending MPI messages, from and to memory that MPI can access. They make progress whenever the
/// thread that posted them calls background() (base/background.hpp).
class Requests {
 public:
  Requests() = default;
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  ~Requests();  ///< waits, as wait() does, but ignores errors
  // tag: as of Group::begin_exchange.
  void receive(MPI_Comm comm, int peer, void* data, std::int64_t bytes, int tag = 0);
  void send(MPI_Comm comm, int peer, const void* data, std::int64_t bytes, int tag = 0);
  /// Returns when all messages posted so far have completed.
  void wait();

 private:
  MPI_Request* add();
  std::vector<MPI_Request> requests_;
};

}  // namespace reelmesh::comm
