#include "comm/connections.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <utility>

#include "base/system.hpp"

namespace reelmesh::comm {
namespace {

constexpr double connect_seconds = 2;  // for each address of rank 0
constexpr std::size_t max_unidentified = 4096;

int milliseconds(double seconds) { return static_cast<int>(1e3 * std::max(seconds, 0.0)); }

}  // namespace

Connections::Connections(int rank, int size)
    : rank_(rank),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      channels_(rank == 0 ? static_cast<std::size_t>(size) : 1),
      was_connected_(channels_.size()) {}

// "port token host address address ..."
std::string Connections::listen() {
  std::random_device random;
  token_ = (std::uint64_t{random()} << 32) | random();
  listener_ = listen_anywhere();
  if (!listener_) return {};
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
  for (const std::string& address : addresses) {
    channel(0) = Channel(connect_to(address, port, connect_seconds), sizeof(Beat));
    if (!open(0)) continue;
    send(0, first);
    // Another program may listen at this address: rank 0 answers with the token.
    pollfd ready{channel(0).descriptor(), POLLIN, 0};
    Beat answer;
    if (::poll(&ready, 1, milliseconds(connect_seconds)) == 1 && channel(0).receive(&answer) &&
        answer.token == token_) {
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
  while (listener_) {
    Socket socket = accept_one(listener_);
    if (!socket) break;
    if (unidentified_.size() < max_unidentified)
      unidentified_.emplace_back(std::move(socket), sizeof(Beat));
  }
  std::vector<Beat> accepted;
  for (Channel& unidentified : unidentified_) {
    Beat first;
    if (!unidentified.receive(&first)) continue;
    if (!identifies_rank(first)) {
      unidentified.close();
      continue;
    }
    channel(first.rank) = std::move(unidentified);
    was_connected_[static_cast<std::size_t>(first.rank)] = true;
    accepted.push_back(first);
  }
  std::erase_if(unidentified_, [](const Channel& channel) { return !channel.open(); });
  return accepted;
}

void Connections::send(int rank, Beat beat) {
  beat.token = token_;
  beat.rank = rank_;
  channel(rank).send(&beat);
}

std::optional<Beat> Connections::receive(int rank) {
  Beat beat;
  while (channel(rank).receive(&beat)) {
    if (beat.token == token_) return beat;
  }
  return std::nullopt;
}

Connections::Events Connections::wait(double seconds) {
  // Ignores a listener that is not there.
  std::vector<pollfd> awaited{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  std::vector<int> ranks;
  for (int rank = 0; rank < std::ssize(channels_); ++rank) {
    if (!open(rank)) continue;
    ranks.push_back(rank);
    awaited.push_back({channel(rank).descriptor(), POLLIN, 0});
  }
  Events events;
  if (::poll(awaited.data(), awaited.size(), milliseconds(seconds)) <= 0) {
    events.none = true;
    return events;
  }
  events.woken = awaited[0].revents != 0;
  events.connecting = awaited[1].revents != 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (awaited[2 + i].revents != 0) events.readable.push_back(ranks[i]);
  }
  if (events.woken) {
    std::uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);
  }
  return events;
}

void Connections::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

}  // namespace reelmesh::comm
