#include "comm/peers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/stop.hpp"
#include "base/units.hpp"

namespace reelmesh::comm {
namespace {

constexpr double report_after = 5;  // seconds that a launcher has to end a job with a dead rank

bool lost(const Peer& peer, double now, double timeout) {
  if (!peer.connected || (peer.left && !peer.open)) return false;
  return peer.disconnected ? now - *peer.disconnected > report_after : now - peer.heard > timeout;
}

}  // namespace

void Peer::connect(const Beat& first, double now) {
  connected = open = true;
  hear(first, now);
}

void Peer::hear(const Beat& beat, double now) {
  heard = now;
  if (beat.waits != last.waits || !beat.may_wait()) progressed = now;
  last = beat;
  left = left || beat.kind == Beat::leaving;
}

void Peer::disconnect(double now) {
  open = false;
  if (!left) disconnected = now;
}

void Peer::extend(double seconds) {
  heard += seconds;
  progressed += seconds;
  if (disconnected) *disconnected += seconds;
}

bool all_have_left(std::span<const Peer> peers) {
  return std::ranges::all_of(peers, [](const Peer& peer) { return !peer.connected || peer.left; });
}

std::optional<int> find_lost(std::span<const Peer> peers, double now, double timeout) {
  const auto found =
      std::ranges::find_if(peers, [&](const Peer& peer) { return lost(peer, now, timeout); });
  if (found == peers.end()) return std::nullopt;
  return static_cast<int>(found - peers.begin());
}

std::string lost_message(const Peer& peer, double timeout) {
  const std::string about = fmt::format("process {} on {}, last seen in {}", peer.last.process,
                                        peer.last.host.string(), beat_text(peer.last));
  if (peer.left) {
    return fmt::format(
        "the process has not ended {} (device.timeout) after its work ({}): it is stopped, or its "
        "host or network is lost. Its files are written; the job ends",
        format_seconds(timeout), about);
  }
  if (peer.disconnected) {
    return fmt::format("the process has ended without a message ({}); the job ends", about);
  }
  return fmt::format(
      "no sign of life for {} (device.timeout) from {}: the process is stopped, or its host or "
      "network is lost; the job ends",
      format_seconds(timeout), about);
}

bool all_wait(std::span<const Peer> peers, double now, double timeout) {
  return std::ranges::all_of(peers, [&](const Peer& peer) {
    return peer.connected && (peer.left || now - peer.progressed > timeout);
  });
}

std::string deadlock_message(std::span<const Peer> peers, double timeout) {
  constexpr std::size_t max_shown = 8;
  const bool writes = std::ranges::any_of(
      peers, [](const Peer& peer) { return peer.last.waiting.empty() && peer.last.may_wait(); });
  std::string waiting_ranks;
  for (std::size_t r = 0; r < std::min(peers.size(), max_shown); ++r) {
    waiting_ranks += fmt::format("{}rank {} in {}", r > 0 ? "; " : "", r, beat_text(peers[r].last));
  }
  return fmt::format(
      "all ranks have waited for each other{} for {} (device.timeout) without progress; the job "
      "ends. {}{}",
      writes ? ", or for files," : "", format_seconds(timeout), waiting_ranks,
      peers.size() > max_shown ? "; ..." : "");
}

bool may_stop(std::span<const Peer> peers) {
  return std::ranges::all_of(peers, [](const Peer& peer) {
    const bool knows = peer.connected && !peer.disconnected && peer.last.stop_cause != stop::none;
    return knows && (peer.left || peer.last.unsaved == 0);
  });
}

}  // namespace reelmesh::comm
