#include "comm/connections.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/system.hpp"

namespace reelmesh::comm {
namespace {

constexpr double connect_seconds = 2;  // for each address of rank 0, at first
constexpr double answer_seconds = 10;
constexpr int ranks_of_turn = 128;
constexpr std::chrono::milliseconds turn{10};
constexpr std::size_t max_unidentified = 4096;
constexpr int wake_key = -1, newcomers_key = -2;

}  // namespace

Connections::Connections(int rank, int size)
    : rank_(rank),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      channels_(rank == 0 ? static_cast<std::size_t>(size) : 1),
      was_connected_(channels_.size()) {
  require(wake_ && readable_.add(wake_.get(), wake_key) &&
              readable_.add(newcomers_.descriptor(), newcomers_key),
          Status::unavailable, "eventfd or epoll_ctl: {}", std::strerror(errno));
}

// "port token host address address ..."
std::string Connections::listen() {
  max_connections_ =
      static_cast<std::size_t>(std::max<std::int64_t>(max_open_files() - other_files, 0));
  std::random_device random;
  token_ = (std::uint64_t{random()} << 32) | random();
  listener_ = listen_anywhere();
  if (!listener_ || !newcomers_.add(listener_.get(), listener_.get())) return {};
  std::string announcement = fmt::format("{} {} {}", bound_port(listener_), token_, host_name());
  for (const std::string& address : own_addresses()) announcement += " " + address;
  return announcement;
}

std::optional<Beat> Connections::connect(const std::string& announcement, const Beat& first) {
  std::istringstream words(announcement);
  std::uint16_t port = 0;
  std::string host;
  std::vector<std::string> addresses;
  words >> port >> token_ >> host;
  for (std::string address; words >> address;) addresses.push_back(address);
  if (host == host_name()) std::ranges::reverse(addresses);  // loopback first
  std::this_thread::sleep_for(rank_ / ranks_of_turn * turn);
  for (const double seconds : {connect_seconds, 2 * connect_seconds}) {
    const std::optional<Beat> answer = connect_once(addresses, port, first, seconds);
    if (answer) return answer;
  }
  return std::nullopt;
}

std::optional<Beat> Connections::connect_once(const std::vector<std::string>& addresses,
                                              std::uint16_t port, const Beat& first,
                                              double seconds) {
  for (const std::string& address : addresses) {
    channel(0) = Channel(connect_to(address, port, seconds), sizeof(Beat));
    if (!open(0)) continue;
    send(0, first);
    // Another program may listen at this address: rank 0 answers with the token.
    pollfd ready{channel(0).descriptor(), POLLIN, 0};
    Beat answer;
    if (::poll(&ready, 1, static_cast<int>(1e3 * answer_seconds)) == 1 &&
        channel(0).receive(&answer) && answer.token == token_ &&
        readable_.add(channel(0).descriptor(), 0)) {
      return answer;
    }
    channel(0).close();
  }
  return std::nullopt;
}

bool Connections::identifies_rank(const Beat& first) const {
  return first.token == token_ && first.rank > 0 &&
         static_cast<std::size_t>(first.rank) < channels_.size() &&
         !was_connected_[static_cast<std::size_t>(first.rank)];
}

std::vector<Beat> Connections::accept() {
  std::vector<Beat> accepted;
  while (true) {
    const std::vector<int> descriptors = newcomers_.wait(0);
    if (descriptors.empty()) return accepted;
    for (const int descriptor : descriptors) {
      if (descriptor == listener_.get()) {
        accept_newcomers();
      } else if (const std::optional<Beat> first = identify(descriptor)) {
        accepted.push_back(*first);
      }
    }
  }
}

void Connections::accept_newcomers() {
  while (identified_ + unidentified_.size() < max_connections_) {
    Socket socket = accept_one(listener_);
    if (!socket) {
      // Those that nobody can accept would be reported for ever.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) break;
      return;
    }
    const int descriptor = socket.get();
    if (unidentified_.size() < max_unidentified && newcomers_.add(descriptor, descriptor)) {
      unidentified_.emplace(descriptor, Channel(std::move(socket), sizeof(Beat)));
    }
  }
  stop_listening();
}

void Connections::stop_listening() {
  newcomers_.remove(listener_.get());
  listener_ = Socket();
}

// The first beat of a rank, which has a channel from then on.
std::optional<Beat> Connections::identify(int descriptor) {
  const auto found = unidentified_.find(descriptor);
  if (found == unidentified_.end()) return std::nullopt;
  Channel& newcomer = found->second;
  Beat first;
  const bool complete = newcomer.receive(&first);
  if (!complete && newcomer.open()) return std::nullopt;
  newcomers_.remove(descriptor);
  const bool accepted = complete && identifies_rank(first) && readable_.add(descriptor, first.rank);
  if (accepted) {
    channel(first.rank) = std::move(newcomer);
    was_connected_[static_cast<std::size_t>(first.rank)] = true;
    ++identified_;
  }
  unidentified_.erase(found);
  return accepted ? std::optional(first) : std::nullopt;
}

void Connections::send(int rank, Beat beat) {
  beat.token = token_;
  beat.rank = rank_;
  channel(rank).send(&beat);
}

std::optional<Beat> Connections::receive(int rank) {
  Channel& from = channel(rank);
  if (!from.open()) return std::nullopt;
  Beat beat;
  while (from.receive(&beat)) {
    if (beat.token == token_) return beat;
  }
  if (!from.open()) {
    readable_.remove(from.descriptor());
    from.close();
  }
  return std::nullopt;
}

Connections::Events Connections::wait(double seconds) {
  const std::vector<int> found = readable_.wait(seconds);
  Events events;
  events.none = found.empty();
  for (const int key : found) {
    if (key == wake_key) {
      events.woken = true;
      std::uint64_t count = 0;
      (void)!::read(wake_.get(), &count, sizeof count);
    } else if (key == newcomers_key) {
      events.connecting = true;
    } else {
      events.readable.push_back(key);
    }
  }
  return events;
}

void Connections::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

}  // namespace reelmesh::comm
