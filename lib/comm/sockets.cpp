#include "comm/sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/error.hpp"

namespace reelmesh::comm {
namespace {

void set_option(const Socket& socket, int level, int option, int value) {
  ::setsockopt(socket.get(), level, option, &value, sizeof value);
}

Socket listen_on(int family) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  sockaddr_storage any = {};
  any.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);  // and IPv4
  const socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), length) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return {};
  }
  return socket;
}

}  // namespace

Socket listen_anywhere() {
  Socket socket = listen_on(AF_INET6);
  return socket ? std::move(socket) : listen_on(AF_INET);
}

std::uint16_t bound_port(const Socket& socket) {
  sockaddr_storage name = {};
  socklen_t length = sizeof name;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

std::vector<std::string> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<std::string> addresses, loopback;
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || (it->ifa_flags & IFF_UP) == 0) continue;
    const int family = it->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(it->ifa_addr, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) !=
        0) {
      continue;
    }
    const std::string address = text.data();
    if (address.find('%') != std::string::npos) continue;  // link-local: needs an interface name
    ((it->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : addresses).push_back(address);
  }
  addresses.insert(addresses.end(), loopback.begin(), loopback.end());
  return addresses;
}

Socket connect_to(const std::string& address, std::uint16_t port, double seconds) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  if (::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return {};
    pollfd ready{socket.get(), POLLOUT, 0};
    if (::poll(&ready, 1, static_cast<int>(1e3 * seconds)) != 1) return {};
    int error = 0;
    socklen_t length = sizeof error;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
      return {};
    }
  }
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

Socket accept_one(const Socket& listener) {
  Socket socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

ReadableSet::ReadableSet() : set_(::epoll_create1(EPOLL_CLOEXEC)) {
  require(static_cast<bool>(set_), Status::unavailable, "epoll_create1: {}", std::strerror(errno));
}

bool ReadableSet::add(int descriptor, int key) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = key;
  return ::epoll_ctl(set_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void ReadableSet::remove(int descriptor) {
  ::epoll_ctl(set_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

std::vector<int> ReadableSet::wait(double seconds) const {
  std::array<epoll_event, 256> found{};
  const int milliseconds = static_cast<int>(std::ceil(1e3 * std::max(seconds, 0.0)));
  const int count =
      ::epoll_wait(set_.get(), found.data(), static_cast<int>(found.size()), milliseconds);
  std::vector<int> keys;
  for (int i = 0; i < count; ++i) keys.push_back(found[static_cast<std::size_t>(i)].data.fd);
  return keys;
}

// Returns whether everything was sent.
bool Channel::flush() {
  while (!outgoing_.empty()) {
    const ssize_t sent =
        ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EINTR ? flush() : false;
    outgoing_.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

void Channel::send(const void* message) {
  if (!open() || !flush()) return;
  outgoing_.assign(static_cast<const char*>(message), size_);
  flush();
}

bool Channel::receive(void* message) {
  std::array<char, 4096> block{};
  while (open() && incoming_.size() < size_) {
    const ssize_t count = ::recv(socket_.get(), block.data(), block.size(), MSG_DONTWAIT);
    if (count > 0) {
      incoming_.append(block.data(), static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return false;
    } else {
      ended_ = true;
    }
  }
  if (size_ == 0 || incoming_.size() < size_) return false;
  std::memcpy(message, incoming_.data(), size_);
  incoming_.erase(0, size_);
  return true;
}

}  // namespace reelmesh::comm
