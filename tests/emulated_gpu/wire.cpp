#include "emulated_gpu/wire.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "emulated_gpu/settings.hpp"

namespace reelmesh::emulated {
namespace {

constexpr auto patience = std::chrono::seconds(120);  // time-out for connecting
constexpr std::size_t hello_bytes = 64;

// An abstract socket address (Linux), which leaves no file behind.
std::pair<sockaddr_un, socklen_t> abstract(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) stop("NCCL: the name " + name + " is too long");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

int new_socket() {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) stop(std::string("NCCL: socket: ") + std::strerror(errno));
  return socket;
}

void transfer_all(int socket, char* data, std::size_t bytes, bool in) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = in ? ::recv(socket, data + done, bytes - done, 0)
                         : ::send(socket, data + done, bytes - done, MSG_NOSIGNAL);
    if (n <= 0 && !(n < 0 && errno == EINTR)) stop("NCCL: a rank left while others came");
    done += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
}

}  // namespace

std::string Connections::socket_name(int rank) const { return name_ + "-" + std::to_string(rank); }

int Connections::connect_to(int peer) const {
  const auto [address, length] = abstract(socket_name(peer));
  const auto until = std::chrono::steady_clock::now() + patience;
  while (true) {
    const int socket = new_socket();
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0) return socket;
    ::close(socket);
    if (std::chrono::steady_clock::now() > until) stop("NCCL: a rank did not come");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Connections::Connections(const std::string& name, int rank, int ranks, const std::string& hello)
    : name_(name),
      rank_(rank),
      sockets_(static_cast<std::size_t>(ranks), -1),
      hellos_(static_cast<std::size_t>(ranks)) {
  const int listener = new_socket();
  const auto [address, length] = abstract(socket_name(rank));
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener, ranks) != 0) {
    stop(std::string("NCCL: bind: ") + std::strerror(errno));
  }
  // Both sides send their rank and hello; the higher rank connects to the lower one.
  const auto greet = [&](int socket) {
    std::string mine(hello_bytes, '\0'), theirs(hello_bytes, '\0');
    const std::string text = std::to_string(rank) + ' ' + hello;
    std::copy_n(text.begin(), std::min(text.size(), hello_bytes), mine.begin());
    transfer_all(socket, mine.data(), hello_bytes, false);
    transfer_all(socket, theirs.data(), hello_bytes, true);
    const auto peer = static_cast<std::size_t>(std::stoi(theirs));
    const char* words = theirs.c_str();
    hellos_.at(peer) = std::strchr(words, ' ') + 1;
    sockets_.at(peer) = socket;
    ::fcntl(socket, F_SETFL, O_NONBLOCK);
  };
  hellos_[static_cast<std::size_t>(rank)] = hello;
  for (int peer = 0; peer < rank; ++peer) greet(connect_to(peer));
  for (int peer = rank + 1; peer < ranks; ++peer) {
    pollfd waiting{listener, POLLIN, 0};
    if (::poll(&waiting, 1, std::chrono::milliseconds(patience).count()) != 1) {
      stop("NCCL: a rank did not come");
    }
    greet(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  }
  ::close(listener);
}

Connections::~Connections() {
  for (const int socket : sockets_) {
    if (socket >= 0) ::close(socket);
  }
}

namespace {

struct Header {
  std::uint64_t bytes = 0, captured = 0;
};

// Messages of one direction to or from one rank, one after the other, each preceded by its header.
struct Lane {
  std::deque<Message> messages;
  Header header;
  std::size_t done = 0;  // bytes of the first message transferred, its header included

  // Address and number of the remaining bytes of the header or of the message.
  std::pair<std::byte*, std::size_t> rest() {
    if (done < sizeof header) {
      return {reinterpret_cast<std::byte*>(&header) + done, sizeof header - done};
    }
    const std::size_t at = done - sizeof header;
    return {messages.front().data + at, messages.front().bytes - at};
  }
};

}  // namespace

std::optional<int> Connections::exchange(const std::vector<Message>& sends,
                                         const std::vector<Message>& receives, bool captured) {
  std::map<int, Lane> out, in;
  for (const Message& message : sends) out[message.peer].messages.push_back(message);
  for (const Message& message : receives) in[message.peer].messages.push_back(message);
  const auto disagree = [&](std::size_t sent, std::size_t expected, int from, int to) {
    stop("NCCL: rank " + std::to_string(from) + " sends " + std::to_string(sent) +
         " bytes to rank " + std::to_string(to) + ", which expects " + std::to_string(expected));
  };
  const auto how = [](bool yes) { return yes ? "in a graph" : "without a graph"; };
  // Messages of a rank to itself.
  while (!in[rank_].messages.empty() && !out[rank_].messages.empty()) {
    const Message &from = out[rank_].messages.front(), &to = in[rank_].messages.front();
    if (from.bytes != to.bytes) disagree(from.bytes, to.bytes, rank_, rank_);
    std::memmove(to.data, from.data, from.bytes);
    out[rank_].messages.pop_front();
    in[rank_].messages.pop_front();
  }
  if (!in[rank_].messages.empty() || !out[rank_].messages.empty()) {
    stop("NCCL: rank " + std::to_string(rank_) + " waits for itself");
  }

  // Transfers what is possible without blocking. Returns false if the peer has disconnected.
  const auto advance = [&](Lane& lane, int peer, bool receiving) {
    while (!lane.messages.empty()) {
      Message& message = lane.messages.front();
      if (!receiving) lane.header = {message.bytes, captured};
      const auto [data, bytes] = lane.rest();
      const int socket = sockets_[static_cast<std::size_t>(peer)];
      const ssize_t n =
          receiving ? ::recv(socket, data, bytes, 0) : ::send(socket, data, bytes, MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
      if (n <= 0) return false;
      lane.done += static_cast<std::size_t>(n);
      if (receiving && lane.done == sizeof lane.header) {
        if (lane.header.bytes != message.bytes) {
          disagree(lane.header.bytes, message.bytes, peer, rank_);
        }
        if ((lane.header.captured != 0) != captured) {
          stop("NCCL: rank " + std::to_string(peer) + " sends " + how(!captured) + " to rank " +
               std::to_string(rank_) + ", which receives " + how(captured));
        }
      }
      if (lane.done < sizeof lane.header + message.bytes) continue;
      lane.messages.pop_front();
      lane.done = 0;
    }
    return true;
  };
  while (true) {
    std::map<int, short> wanted;
    for (const auto& [peer, lane] : in) {
      if (!lane.messages.empty()) wanted[peer] |= POLLIN;
    }
    for (const auto& [peer, lane] : out) {
      if (!lane.messages.empty()) wanted[peer] |= POLLOUT;
    }
    if (wanted.empty()) return {};
    std::vector<pollfd> polled;
    std::vector<int> peers;
    for (const auto& [peer, events] : wanted) {
      polled.push_back({sockets_[static_cast<std::size_t>(peer)], events, 0});
      peers.push_back(peer);
    }
    ::poll(polled.data(), polled.size(), -1);
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      if (!advance(in[peers[i]], peers[i], true) || !advance(out[peers[i]], peers[i], false)) {
        return peers[i];
      }
    }
  }
}

}  // namespace reelmesh::emulated
