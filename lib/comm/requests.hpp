#pragma once
// MPI's side of messages: requests that are under way, and the check of MPI's calls.
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reelmesh::comm {

/// Throws Error(internal) that names the call where it failed.
void check(int code, const char* call);
/// A count as MPI takes it. Throws Error(internal) where it is too large.
int to_int(std::size_t n, const char* call);

/// Messages between addresses that MPI can use. The calling thread helps them along whenever it
/// calls background() (base/background.hpp).
class Requests {
 public:
  Requests() = default;
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  ~Requests();  ///< waits, as wait() does, but says nothing of errors
  void receive(MPI_Comm comm, int peer, void* data, std::int64_t bytes);
  void send(MPI_Comm comm, int peer, const void* data, std::int64_t bytes);
  /// Returns when all that was asked for so far is done.
  void wait();

 private:
  MPI_Request* add();
  std::vector<MPI_Request> requests_;
};

}  // namespace reelmesh::comm
