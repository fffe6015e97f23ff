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
/// A connection that waits on a listening socket, if there is one; non-blocking.
Socket accept_one(const Socket& listener);

/// Sends and receives messages of `size` bytes on a connection without ever blocking.
class Channel {
 public:
  Channel() = default;
  Channel(Socket socket, std::size_t size) : socket_(std::move(socket)), size_(size) {}

  int descriptor() const { return socket_.get(); }
  bool open() const { return static_cast<bool>(socket_); }
  void close() { socket_ = Socket(); }
  /// Sends a message of `size` bytes; drops it if the peer has not received earlier ones.
  void send(const void* message);
  /// The next complete message that has arrived. Closes the channel at its end and on errors.
  bool receive(void* message);

 private:
  bool flush();

  Socket socket_;
  std::size_t size_ = 0;
  std::string outgoing_, incoming_;
};

}  // namespace reelmesh::comm
