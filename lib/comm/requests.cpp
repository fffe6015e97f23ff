#include "comm/requests.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "base/background.hpp"
#include "base/error.hpp"
#include "comm/waiting.hpp"

namespace reelmesh::comm {
namespace {

constexpr int first_tag = 16;  // of exchanges; those of other messages are lower
// MPI counts are ints: larger messages are split.
constexpr std::int64_t piece_bytes = std::int64_t{1} << 30;

// Any MPI call progresses all pending messages; this probe has no other effect.
int pending_count = 0;  // Requests that have pending messages
void make_progress() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, first_tag, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
}

void count(int change) {
  pending_count += change;
  background_work = pending_count > 0 ? make_progress : nullptr;
}

// Calls start(first byte, bytes) for each piece.
template <class F>
void in_pieces(std::int64_t bytes, F&& start) {
  for (std::int64_t done = 0; done < bytes; done += piece_bytes) {
    start(done, static_cast<int>(std::min(piece_bytes, bytes - done)));
  }
}

}  // namespace

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(Status::internal, "{}: {}", call, std::string_view(text.data(), std::size_t(length)));
}

int to_int(std::size_t n, const char* call) {
  expect(n <= std::size_t(std::numeric_limits<int>::max()), "{}: {} bytes in one block", call, n);
  return static_cast<int>(n);
}

MPI_Request* Requests::add() {
  if (requests_.empty()) count(1);
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

void Requests::receive(MPI_Comm comm, int peer, void* data, std::int64_t bytes, int tag) {
  in_pieces(bytes, [&](std::int64_t at, int n) {
    check(MPI_Irecv(static_cast<std::byte*>(data) + at, n, MPI_BYTE, peer, first_tag + tag, comm,
                    add()),
          "MPI_Irecv");
  });
}

void Requests::send(MPI_Comm comm, int peer, const void* data, std::int64_t bytes, int tag) {
  in_pieces(bytes, [&](std::int64_t at, int n) {
    check(MPI_Isend(static_cast<const std::byte*>(data) + at, n, MPI_BYTE, peer, first_tag + tag,
                    comm, add()),
          "MPI_Isend");
  });
}

void Requests::wait() {
  if (requests_.empty()) return;
  std::vector<MPI_Request> requests = std::exchange(requests_, {});
  count(-1);
  const WaitMark waiting("MPI_Wait");
  // One by one: MPI_Waitall of Open MPI 4.1 may not return if a message is longer than its buffer.
  int error = MPI_SUCCESS;
  for (MPI_Request& request : requests) {
    const int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS) error = code;
  }
  check(error, "MPI_Wait");
}

Requests::~Requests() {
  try {
    wait();
  } catch (const Error&) {  // not waited for by its owner: an exception is already unwinding
  }
}

}  // namespace reelmesh::comm
