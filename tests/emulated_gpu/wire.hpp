#pragma once
// How processes of the emulated NCCL talk: a socket for each pair of ranks.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace reelmesh::emulated {

/// Bytes on their way to or from one rank.
struct Parcel {
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class Wire {
 public:
  /// Returns when all ranks of this name are here. hello: what each tells the others.
  Wire(const std::string& name, int rank, int ranks, const std::string& hello);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  const std::vector<std::string>& hellos() const { return hellos_; }  ///< of all ranks

  /// Sends and receives together, in whatever order the others come. Both sides know the bytes;
  /// the process ends where they do not agree. → the rank that is gone, if one is.
  std::optional<int> exchange(const std::vector<Parcel>& sends,
                              const std::vector<Parcel>& receives);

 private:
  int connect_to(int peer) const;
  std::string address_of(int rank) const;

  std::string name_;
  int rank_;
  std::vector<int> sockets_;  ///< to each rank; −1 for this one
  std::vector<std::string> hellos_;
};

}  // namespace reelmesh::emulated
