#include "comm/heartbeat.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.hpp"
#include "base/stop.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"

namespace reelmesh::comm {
namespace {

constexpr double period = 0.25;  // seconds between two heartbeats

double now() { return 1e-9 * static_cast<double>(trace::now_ns()); }

}  // namespace

Heartbeat::Heartbeat(const Group& world, const WatchdogSettings& settings, HeartbeatHooks hooks)
    : settings_(settings),
      hooks_(std::move(hooks)),
      rank_(world.rank()),
      connections_(rank_, world.size()),
      peers_(rank_ == 0 ? static_cast<std::size_t>(world.size()) : 1),
      last_round_(now()) {
  for (Peer& peer : peers_) peer.heard = peer.progressed = now();
  bool unreached = false;
  if (rank_ == 0) {
    peers_[0].connected = true;
    if (world.size() > 1) announcement_ = connections_.listen();
    thread_ = std::thread([this] { run(); });  // before others wait for it to accept them
    world.broadcast(announcement_, 0);
  } else {
    const std::optional<Beat> answer = connections_.connect(world.broadcast({}, 0), own_beat());
    if (answer) peers_[0].connect(*answer, now());
    unreached = !answer;
    thread_ = std::thread([this] { run(); });
  }
  const auto unwatched = static_cast<int>(world.sum(unreached ? 1.0 : 0.0));
  if (unwatched > 0) {
    const std::int64_t files = max_open_files();
    const bool few = files < world.size() + Connections::other_files;
    log::warning("{} of {} ranks cannot reach rank 0 over TCP{}: it is not noticed if they hang",
                 unwatched, world.size(),
                 few ? fmt::format(", as it may have only {} files open (ulimit -n)", files) : "");
  }
  reaches_all_ = unwatched == 0;
}

Heartbeat::~Heartbeat() { end(); }

void Heartbeat::end() {
  if (!running()) return;
  ending_ = true;
  connections_.wake();
  thread_.join();
}

// Ranks that end still watch each other, until rank 0 has heard from all that they end, and has
// told them so. Rank 0 then waits until their processes have ended: one that is stopped before
// would keep a launcher waiting for ever.
Heartbeat::End Heartbeat::end_reached() const {
  if (!ending_) return End::none;
  const bool left = all_have_left(std::span(peers_).subspan(rank_ == 0 ? 1 : 0));
  if (rank_ > 0) return left ? End::done : End::announced;
  if (!left) return End::wanted;
  return std::ranges::any_of(peers_, &Peer::open) ? End::announced : End::done;
}

void Heartbeat::run() {
  for (End told = End::none; told != End::done;) {
    serve_until_next_round(told);
    extend_deadlines();
    told = end_reached();
    if (rank_ == 0) peers_[0].hear(own_beat(), now());
    send_all(told >= End::announced ? Beat::leaving : Beat::alive);
    if (told == End::done) return;
    if (rank_ == 0) {
      check_stop();
      hooks_.observed(peers_, now());
      check_ranks();
    } else {
      check_first_rank();
    }
  }
}

// Until the next round is due: receives beats and exchanges tasks. The round begins at once if the
// end has come closer than what the last one told others. Only what ranks do at their end takes a
// time here that depends on their number.
void Heartbeat::serve_until_next_round(End told) {
  const double due = now() + period;
  bool ending = told != End::none;
  while (now() < due) {
    const Connections::Events events = connections_.wait(due - now());
    if (events.woken && rank_ > 0) send_all(Beat::alive);
    if (events.connecting) answer_new_ranks();
    bool ends = ending_ != ending;
    ending = ending_;
    for (const int rank : events.readable) ends |= receive(rank);
    if (ends && end_reached() != told) return;
  }
}

// If this process was suspended, perhaps with the whole job, it heard nobody.
void Heartbeat::extend_deadlines() {
  const double gap = now() - last_round_;
  if (gap > 2) {
    for (Peer& peer : peers_) peer.extend(gap);
  }
  last_round_ = now();
}

void Heartbeat::answer_new_ranks() {
  for (const Beat& first : connections_.accept()) {
    peers_[static_cast<std::size_t>(first.rank)].connect(first, now());
    send(first.rank, own_beat());
  }
}

// Returns whether the rank has announced its end, or its connection has closed.
bool Heartbeat::receive(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const bool had_left = peer.left, was_open = peer.open;
  while (const std::optional<Beat> beat = connections_.receive(rank)) {
    peer.hear(*beat, now());
    if (beat->stop_cause != stop::none) stop::request(beat->stop_cause);
    stop::note_new_plan(beat->new_plans);
    if (beat->kind == Beat::end) _exit(beat->end_status);  // rank 0 has said why
    if (hooks_.task_received(rank, beat->task)) send(rank, own_beat());
  }
  if (peer.open && !connections_.open(rank)) peer.disconnect(now());
  return peer.left != had_left || peer.open != was_open;
}

void Heartbeat::send_all(Beat::Kind kind, Status status) {
  Beat beat = own_beat();
  beat.kind = kind;
  beat.end_status = static_cast<std::int32_t>(status);
  for (int rank = 0; rank < std::ssize(peers_); ++rank) send(rank, beat);
}

void Heartbeat::send(int rank, Beat beat) {
  beat.task = hooks_.next_task(rank);
  connections_.send(rank, beat);
}

void Heartbeat::check_ranks() {
  if (const auto lost = find_lost(peers_, now(), settings_.timeout)) {
    const Peer& peer = peers_[static_cast<std::size_t>(*lost)];
    log::say_here(log::Level::error, lost_message(peer, settings_.timeout), LaunchedRank{*lost});
    end_job(Status::watchdog);
  }
  if (all_wait(peers_, now(), settings_.timeout)) {
    log::say(log::Level::error, deadlock_message(peers_, settings_.timeout));
    end_job(Status::watchdog);
  }
}

void Heartbeat::check_first_rank() {
  const Peer& first = peers_[0];
  if (first.left || !find_lost(peers_, now(), settings_.timeout)) return;
  // All other ranks notice it at about the same time; the lowest one reports it and leaves first,
  // and a launcher then ends the others, for which mpirun takes some seconds.
  std::this_thread::sleep_for(std::chrono::seconds(std::min(5 * (rank_ - 1), 15)));
  log::say_here(log::Level::error, lost_message(first, settings_.timeout), first_rank);
  _exit(static_cast<int>(Status::watchdog));
}

// Ends a job that was asked to stop and is in a long computation that need not be saved.
void Heartbeat::check_stop() {
  if (stop::seconds_since_request() < settings_.grace || !may_stop(peers_)) return;
  log::say(log::Level::info,
           fmt::format("stopped on request ({}) in {}; run again with --output.if-exists resume to "
                       "go on",
                       stop::cause_text(stop::cause()), beat_text(peers_[0].last)));
  end_job(Status::stopped);
}

void Heartbeat::end_job(Status status) {
  send_all(Beat::end, status);
  // They leave with this status, not killed by a launcher.
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * period));
  _exit(static_cast<int>(status));
}

}  // namespace reelmesh::comm
