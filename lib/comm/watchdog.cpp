#include "comm/watchdog.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "base/log.hpp"
#include "base/stop.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"
#include "base/units.hpp"
#include "comm/sockets.hpp"
#include "comm/waiting.hpp"

namespace reelmesh::comm {
namespace {

constexpr std::chrono::milliseconds period{250};  // between two heartbeats
constexpr double connect_seconds = 2;             // for each address of rank 0
constexpr double report_after = 5;  // seconds that a launcher has to end a job with a dead rank

double now() { return 1e-9 * static_cast<double>(trace::now_ns()); }

// A heartbeat: what a rank does, or the order of rank 0 to end.
struct Beat {
  enum Kind : std::int32_t { alive, leaving, end };
  std::uint64_t token = 0;  // of this job
  std::int32_t kind = alive, rank = 0, process = 0;
  std::int32_t stop_cause = 0, end_status = 0, unsaved = 0;
  std::int32_t clip = -1, step = -1, layer = -1;
  std::int64_t waits = 0;
  // A rank's request for a task, numbered from 1, which it repeats until it has the answer; rank
  // 0's answer has the same request.
  std::int64_t request = 0;
  std::int32_t queue = 0;
  End end_of_queue = End::none;
  Taken taken;
  std::array<char, 24> stage{}, waiting{};
  std::array<char, 64> host{};
};

template <std::size_t N>
void copy_text(std::array<char, N>& to, const char* from) {
  if (from != nullptr) std::strncpy(to.data(), from, N - 1);
}

template <std::size_t N>
std::string array_text(const std::array<char, N>& text) {
  return {text.data(), strnlen(text.data(), N)};
}

Beat own_beat(std::uint64_t token, int rank) {
  const trace::Recorder& recorder = trace::recorder();
  Beat beat;
  beat.token = token;
  beat.rank = rank;
  beat.process = ::getpid();
  beat.stop_cause = stop::cause();
  beat.unsaved = stop::has_unsaved_work() ? 1 : 0;
  beat.clip = recorder.clip;
  beat.step = recorder.step;
  beat.layer = recorder.layer;
  beat.waits = recorder.waits;
  copy_text(beat.stage, recorder.stage);
  copy_text(beat.waiting, recorder.waiting);
  copy_text(beat.host, host_name().c_str());
  return beat;
}

// "denoise_step, clip 2, step 14, layer 7, waiting in MPI_Waitall"
std::string describe(const Beat& beat) {
  const std::string stage = array_text(beat.stage), waiting = array_text(beat.waiting);
  std::string text = stage.empty() ? "no stage" : stage;
  const auto add = [&](const char* what, int number) {
    if (number >= 0) text += fmt::format(", {} {}", what, number);
  };
  add("clip", beat.clip);
  add("step", beat.step);
  add("layer", beat.layer);
  if (!waiting.empty()) text += ", waiting in " + waiting;
  return text;
}

// Starts a child process that kills this one, after a message, unless it ends within so many
// seconds. Nothing is guarded if the system has no room for another process.
void guard_end(double seconds) {
  const std::string message = fmt::format(
      "reelmesh: error: rank 0: the process has not ended {} after its work: it was stopped. All "
      "files are written; it is killed\n",
      format_seconds(seconds));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  const pid_t guarded = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {  // only calls that may be made in a copy of a process with several threads
    ::close(ends[1]);
    // A second at a time, so that time in which the whole job is suspended does not count.
    for (; seconds > 0; --seconds) {
      pollfd ended{ends[0], POLLIN, 0};
      if (::poll(&ended, 1, 1000) == 1) ::_exit(0);
    }
    (void)!::write(STDERR_FILENO, message.data(), message.size());
    ::kill(guarded, SIGKILL);
    ::_exit(0);
  }
  ::close(ends[0]);  // the other end closes with this process
}

// What rank 0 knows of a rank, and other ranks of rank 0.
struct Peer {
  Channel channel;
  Beat last;
  double heard = 0;       // when
  double progressed = 0;  // when it last computed, or ended a call in which it waited
  bool connected = false;
  std::int64_t request = 0;            // the last one
  Taken taken;                         // its answer
  bool left = false;                   // has announced that its process ends
  std::optional<double> disconnected;  // when its connection closed without Beat::leaving

  void take(const Beat& beat) {
    heard = now();
    if (beat.waits != last.waits || beat.waiting[0] == '\0') progressed = heard;
    last = beat;
    left = left || beat.kind == Beat::leaving;
  }
};

}  // namespace

class Watchdog::Thread {
 public:
  Thread(const Group& world, const WatchdogSettings& settings);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  void end(bool guarded);
  bool has_queues() const { return has_queues_; }
  Taken take(int queue, End end);
  std::vector<Activity> activities() const;

 private:
  Taken count(int queue, End end);
  void wake();
  void serve_until_next_round();
  void announce_address(const Group& world);
  void connect_to_first_rank(const Group& world);
  void run();
  bool all_have_left() const;
  bool done() const;
  void extend_deadlines(double seconds);
  void accept_ranks();
  void receive();
  void send(Beat::Kind kind, Status status = Status::ok);
  void send(Peer& peer, Beat beat);
  void receive(Peer& peer);
  bool lost(const Peer& peer) const;
  void report_lost(int rank, const Peer& peer) const;
  void publish_activities();
  void check_ranks();
  void check_first_rank();
  void check_stop();
  [[noreturn]] void end_job(Status status);

  WatchdogSettings settings_;
  int rank_, size_;
  std::uint64_t token_ = 0;
  double last_round_ = now();
  Socket listener_, wake_;
  std::vector<Channel> unidentified_;  // connected, but not known to be a rank
  std::vector<Peer> peers_;            // on rank 0: by rank, itself included; elsewhere: rank 0
  mutable std::mutex activities_mutex_;
  std::vector<Activity> activities_;
  std::atomic<bool> ending_{false};
  bool has_queues_ = false;
  std::mutex queues_mutex_;
  std::map<int, Taken> queues_;  // on rank 0
  // Elsewhere: the last request, and the last one that is answered, with what.
  std::atomic<std::int64_t> request_{0}, answered_{0};
  std::atomic<std::int32_t> queue_{0};
  std::atomic<End> end_{End::none};
  Taken taken_;  // written before answered_
  std::thread thread_;
};

Watchdog::Thread::Thread(const Group& world, const WatchdogSettings& settings)
    : settings_(settings),
      rank_(world.rank()),
      size_(world.size()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  peers_.resize(rank_ == 0 ? static_cast<std::size_t>(size_) : 1);
  for (Peer& peer : peers_) peer.heard = peer.progressed = now();
  if (rank_ == 0) {
    announce_address(world);
  } else {
    connect_to_first_rank(world);
  }
  const auto unwatched = static_cast<int>(world.sum(rank_ == 0 || peers_[0].connected ? 0.0 : 1.0));
  if (unwatched > 0) {
    log::warning("{} of {} ranks cannot reach rank 0 over TCP: it is not noticed if they hang",
                 unwatched, size_);
  }
  has_queues_ = unwatched == 0;
}

Watchdog::Thread::~Thread() { end(false); }

void Watchdog::Thread::end(bool guarded) {
  if (!thread_.joinable()) return;
  if (guarded && rank_ == 0 && size_ > 1) guard_end(3 * settings_.timeout);
  ending_ = true;
  wake();
  thread_.join();
}

void Watchdog::Thread::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

Taken Watchdog::Thread::count(int queue, End end) {
  const std::lock_guard lock(queues_mutex_);
  Taken& taken = queues_[queue];
  const Taken before = taken;
  if (end == End::front) ++taken.front;
  if (end == End::back) ++taken.back;
  return before;
}

Taken Watchdog::Thread::take(int queue, End end) {
  expect(has_queues_, "a rank that cannot reach rank 0 takes a task");
  if (rank_ == 0) return count(queue, end);
  queue_ = queue;
  end_ = end;
  const Waiting waiting("take");
  const std::int64_t request = ++request_;
  wake();
  answered_.wait(request - 1);
  return taken_;
}

// Rank 0 tells the others where they can reach it: "port token address address ...".
void Watchdog::Thread::announce_address(const Group& world) {
  std::string announcement;
  if (size_ > 1) {
    rlimit files = {};  // one connection per rank
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
      files.rlim_cur = files.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &files);
    }
    std::random_device random;
    token_ = (std::uint64_t{random()} << 32) | random();
    listener_ = listen_anywhere();
    if (listener_) {
      announcement = fmt::format("{} {} {}", bound_port(listener_), token_, host_name());
      for (const std::string& address : own_addresses()) announcement += " " + address;
    }
  }
  thread_ = std::thread([this] { run(); });  // before others wait for it to accept them
  world.broadcast(announcement, 0);
}

void Watchdog::Thread::connect_to_first_rank(const Group& world) {
  std::istringstream announcement(world.broadcast({}, 0));
  std::uint16_t port = 0;
  std::string host;
  std::vector<std::string> addresses;
  announcement >> port >> token_ >> host;
  for (std::string address; announcement >> address;) addresses.push_back(address);
  if (host == host_name()) std::ranges::reverse(addresses);  // loopback first
  Peer& first = peers_[0];
  for (const std::string& address : addresses) {
    first.channel = Channel(connect_to(address, port, connect_seconds), sizeof(Beat));
    if (!first.channel.open()) continue;
    send(Beat::alive);
    // Another program may listen at this address: rank 0 answers with the token.
    pollfd ready{first.channel.descriptor(), POLLIN, 0};
    Beat answer;
    if (::poll(&ready, 1, static_cast<int>(1e3 * connect_seconds)) == 1 &&
        first.channel.receive(&answer) && answer.token == token_) {
      first.connected = true;
      first.take(answer);
      break;
    }
    first.channel.close();
  }
  thread_ = std::thread([this] { run(); });
}

bool Watchdog::Thread::all_have_left() const {
  const auto has_left = [](const Peer& peer) { return !peer.connected || peer.left; };
  return std::all_of(peers_.begin() + (rank_ == 0 ? 1 : 0), peers_.end(), has_left);
}

// Ranks that end still watch each other, until rank 0 has heard from all that they end, and has
// told them so. Rank 0 then waits until their processes have ended: one that is stopped before
// would keep a launcher waiting for ever.
bool Watchdog::Thread::done() const {
  if (!ending_ || !all_have_left()) return false;
  return rank_ > 0 ||
         std::ranges::none_of(peers_, [](const Peer& peer) { return peer.channel.open(); });
}

void Watchdog::Thread::run() {
  while (!done()) {
    serve_until_next_round();
    const double gap = now() - last_round_;
    if (gap > 2) extend_deadlines(gap);
    last_round_ = now();
    if (rank_ == 0) {
      peers_[0].take(own_beat(token_, 0));
      accept_ranks();
    }
    receive();
    send(ending_ && (rank_ > 0 || all_have_left()) ? Beat::leaving : Beat::alive);
    check_stop();
    if (rank_ == 0) {
      publish_activities();
      check_ranks();
    } else {
      check_first_rank();
    }
  }
  send(Beat::leaving);
}

// Waits until the next round is due, and meanwhile answers requests for tasks. A new connection
// begins a round at once, as a rank waits for it; so does the destructor, which waits for the end.
void Watchdog::Thread::serve_until_next_round() {
  constexpr std::chrono::milliseconds short_period{10};
  const bool ended = ending_;
  const double end = now() + 1e-3 * static_cast<double>((ended ? short_period : period).count());
  std::vector<pollfd> awaited{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  std::vector<Peer*> peers;
  for (Peer& peer : peers_) {
    if (!peer.channel.open()) continue;
    peers.push_back(&peer);
    awaited.push_back({peer.channel.descriptor(), POLLIN, 0});
  }
  while (true) {
    const auto left = static_cast<int>(1e3 * std::max(end - now(), 0.0));
    // Ignores a listener that is not there.
    if (::poll(awaited.data(), awaited.size(), left) <= 0) return;
    if (awaited[0].revents != 0) {
      std::uint64_t count = 0;
      (void)!::read(wake_.get(), &count, sizeof count);
      if (rank_ > 0) send(Beat::alive);
    }
    if (awaited[1].revents != 0 || ending_ != ended) return;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (awaited[2 + i].revents == 0) continue;
      receive(*peers[i]);
      if (!peers[i]->channel.open()) return;
    }
  }
}

// This process was suspended, perhaps with the whole job, and heard nobody.
void Watchdog::Thread::extend_deadlines(double seconds) {
  for (Peer& peer : peers_) {
    peer.heard += seconds;
    peer.progressed += seconds;
    if (peer.disconnected) *peer.disconnected += seconds;
  }
}

void Watchdog::Thread::accept_ranks() {
  constexpr std::size_t max_unidentified = 4096;
  while (listener_) {
    Socket socket = accept_one(listener_);
    if (!socket) break;
    if (unidentified_.size() < max_unidentified)
      unidentified_.emplace_back(std::move(socket), sizeof(Beat));
  }
  for (Channel& channel : unidentified_) {
    Beat first_beat;
    if (!channel.receive(&first_beat)) continue;
    if (first_beat.token != token_ || first_beat.rank <= 0 || first_beat.rank >= size_ ||
        peers_[static_cast<std::size_t>(first_beat.rank)].connected) {
      channel.close();
      continue;
    }
    Peer& peer = peers_[static_cast<std::size_t>(first_beat.rank)];
    peer.channel = std::move(channel);
    peer.connected = true;
    peer.take(first_beat);
  }
  std::erase_if(unidentified_, [](const Channel& channel) { return !channel.open(); });
}

void Watchdog::Thread::receive() {
  for (Peer& peer : peers_) receive(peer);
}

void Watchdog::Thread::receive(Peer& peer) {
  Beat beat;
  while (peer.channel.receive(&beat)) {
    if (beat.token != token_) continue;
    peer.take(beat);
    if (beat.stop_cause != stop::none) stop::request(beat.stop_cause);
    if (beat.kind == Beat::end) _exit(beat.end_status);  // rank 0 has said why
    if (rank_ == 0 && beat.request > 0) {
      if (beat.request != peer.request) peer.taken = count(beat.queue, beat.end_of_queue);
      peer.request = beat.request;
      send(peer, own_beat(token_, rank_));
    } else if (rank_ > 0 && beat.request > answered_) {
      taken_ = beat.taken;
      answered_ = beat.request;
      answered_.notify_all();
    }
  }
  if (peer.connected && !peer.left && !peer.disconnected && !peer.channel.open())
    peer.disconnected = now();
}

void Watchdog::Thread::send(Beat::Kind kind, Status status) {
  Beat beat = own_beat(token_, rank_);
  beat.kind = kind;
  beat.end_status = static_cast<std::int32_t>(status);
  for (Peer& peer : peers_) send(peer, beat);
}

void Watchdog::Thread::send(Peer& peer, Beat beat) {
  if (rank_ == 0) {
    beat.request = peer.request;
    beat.taken = peer.taken;
  } else if (request_ > answered_) {
    beat.request = request_;
    beat.queue = queue_;
    beat.end_of_queue = end_;
  }
  peer.channel.send(&beat);
}

// Says why the job ends: a rank's process has ended, or gives no sign of life.
void Watchdog::Thread::report_lost(int rank, const Peer& peer) const {
  const std::string about = fmt::format("process {} on {}, last seen in {}", peer.last.process,
                                        array_text(peer.last.host), describe(peer.last));
  const std::string message =
      peer.left ? fmt::format(
                      "the process has not ended {} (device.timeout) after its work ({}): it is "
                      "stopped, or its host or network is lost. Its files are written; the job "
                      "ends",
                      format_seconds(settings_.timeout), about)
      : peer.disconnected
          ? fmt::format("the process has ended without a message ({}); the job ends", about)
          : fmt::format(
                "no sign of life for {} (device.timeout) from {}: the process is "
                "stopped, or its host or network is lost; the job ends",
                format_seconds(settings_.timeout), about);
  log::say_here(log::Level::error, message, rank);
}

void Watchdog::Thread::publish_activities() {
  std::vector<Activity> activities;
  for (const Peer& peer : peers_) {
    const Beat& beat = peer.last;
    const bool own = &peer == peers_.data();
    if (!own && !peer.connected) continue;
    activities.push_back({static_cast<int>(&peer - peers_.data()), beat.process,
                          array_text(beat.host), array_text(beat.stage), array_text(beat.waiting),
                          beat.clip, beat.step, beat.layer, own ? 0 : now() - peer.heard});
  }
  const std::lock_guard lock(activities_mutex_);
  activities_ = std::move(activities);
}

std::vector<Activity> Watchdog::Thread::activities() const {
  const std::lock_guard lock(activities_mutex_);
  return activities_;
}

bool Watchdog::Thread::lost(const Peer& peer) const {
  return peer.disconnected ? now() - *peer.disconnected > report_after
                           : now() - peer.heard > settings_.timeout;
}

void Watchdog::Thread::check_ranks() {
  bool all_wait = true;
  for (int r = 0; r < size_; ++r) {
    const Peer& peer = peers_[static_cast<std::size_t>(r)];
    if (r > 0 && !peer.connected) all_wait = false;
    if (r > 0 && (!peer.connected || (peer.left && !peer.channel.open()))) continue;
    if (lost(peer)) {
      report_lost(r, peer);
      end_job(Status::watchdog);
    }
    all_wait = all_wait && (peer.left || now() - peer.progressed > settings_.timeout);
  }
  if (!all_wait) return;
  constexpr int max_shown = 8;
  std::string waiting_ranks;
  for (int r = 0; r < std::min(size_, max_shown); ++r) {
    waiting_ranks += fmt::format("{}rank {} in {}", r > 0 ? "; " : "", r,
                                 describe(peers_[static_cast<std::size_t>(r)].last));
  }
  log::say(log::Level::error,
           fmt::format("all ranks have waited for each other for {} (device.timeout) without "
                       "progress; the job ends. {}{}",
                       format_seconds(settings_.timeout), waiting_ranks,
                       size_ > max_shown ? "; ..." : ""));
  end_job(Status::watchdog);
}

void Watchdog::Thread::check_first_rank() {
  const Peer& first = peers_[0];
  if (!first.connected || first.left) return;
  if (!lost(first)) return;
  // All other ranks notice it at about the same time; the lowest one reports it and leaves first,
  // and a launcher then ends the others, for which mpirun takes some seconds.
  std::this_thread::sleep_for(std::chrono::seconds(std::min(5 * (rank_ - 1), 15)));
  report_lost(0, first);
  _exit(static_cast<int>(Status::watchdog));
}

// Ends a job that was asked to stop and is in a long computation that need not be saved.
void Watchdog::Thread::check_stop() {
  if (rank_ != 0 || stop::seconds_since_request() < settings_.grace) return;
  for (const Peer& peer : peers_) {
    const bool own = &peer == peers_.data();
    if (!own && (!peer.connected || peer.disconnected || peer.last.stop_cause == stop::none))
      return;
    if (!peer.left && peer.last.unsaved != 0) return;
  }
  log::say(log::Level::info,
           fmt::format("stopped on request ({}) in {}; run again with --output.if-exists resume to "
                       "go on",
                       stop::describe(stop::cause()), describe(peers_[0].last)));
  end_job(Status::stopped);
}

void Watchdog::Thread::end_job(Status status) {
  send(Beat::end, status);
  std::this_thread::sleep_for(2 * period);  // they leave with this status, not killed by a launcher
  _exit(static_cast<int>(status));
}

Watchdog::Watchdog(const Group& world, const WatchdogSettings& settings)
    : thread_(std::make_unique<Thread>(world, settings)) {}

Watchdog::~Watchdog() = default;

void Watchdog::end(bool guarded) { thread_->end(guarded); }

bool Watchdog::has_queues() const { return thread_->has_queues(); }
Taken Watchdog::take(int queue, End end) { return thread_->take(queue, end); }

std::vector<Activity> Watchdog::activities() const { return thread_->activities(); }

}  // namespace reelmesh::comm
