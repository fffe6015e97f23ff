#pragma once
// TCP connections of the watchdog. Messages have a fixed size; all ranks have the same ABI.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/handle.hpp"

namespace reelmesh::comm {

using Socket = Handle<int, &::close, -1>;

/// A listening socket of this host for all its addresses, on a free port. Empty if the system
/// refuses.
Socket listen_anywhere();
std::uint16_t bound_port(const Socket& socket);
/// The numeric addresses of this host's network interfaces that are up, loopback last.
std::vector<std::string> own_addresses();
/// Connects within `seconds`; empty if that fails.
Socket connect_to(const std::string& address, std::uint16_t port, double seconds);
/// A connection that waits on a listening socket, if there is one; non-blocking. Otherwise errno
/// says why not.
Socket accept_one(const Socket& listener);

/// Descriptors that are waited for together (epoll): a wait takes a time that depends on how many
/// of them can be read, and not on how many there are.
class ReadableSet {
 public:
  /// Error(unavailable) if the system refuses.
  ReadableSet();

  /// key: what wait() calls it. A set, too, can be waited for in another one. → false if the system
  /// refuses.
  bool add(int descriptor, int key);
  /// Before the descriptor is closed: a copy of it in a child process would keep it in the set.
  void remove(int descriptor);
  int descriptor() const { return set_.get(); }
  /// Waits until some can be read, or are closed at the other end, for at most so many seconds. →
  /// their keys, of at most 256 of them, by turns.
  std::vector<int> wait(double seconds) const;

 private:
  Socket set_;
};

/// Sends and receives messages of `size` bytes on a connection without ever blocking. A channel
/// that has ended keeps its descriptor until close().
class Channel {
 public:
  Channel() = default;
  Channel(Socket socket, std::size_t size) : socket_(std::move(socket)), size_(size) {}

  int descriptor() const { return socket_.get(); }
  bool open() const { return socket_ && !ended_; }
  void close() { socket_ = Socket(); }
  /// Sends a message of `size` bytes; drops it if the peer has not received earlier ones.
  void send(const void* message);
  /// The next complete message that has arrived. At the end of the connection and on errors the
  /// channel ends: it is no longer open.
  bool receive(void* message);

 private:
  bool flush();

  Socket socket_;
  std::size_t size_ = 0;
  bool ended_ = false;
  std::string outgoing_, incoming_;
};

}  // namespace reelmesh::comm
