// Measures what the heartbeats of many ranks cost rank 0:
//   build/tests/bench_heartbeat [RANKS...]
// By default 64, 512 and 4096. One process has the heartbeat of rank 0 and a connection for each
// rank, which sends four beats a second, spread evenly over time. Prints for each number of ranks
// how long they took to connect, and the CPU seconds per second of the heartbeat's thread.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "base/system.hpp"
#include "bench_main.hpp"
#include "comm/activities.hpp"
#include "comm/heartbeat.hpp"
#include "support/many_ranks.hpp"

namespace {

using namespace reelmesh;
using Clock = std::chrono::steady_clock;

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// All ranks send a beat four times a second, and receive those of rank 0.
void beat_for(test::ManyRanks& ranks, double seconds) {
  const Clock::time_point start = Clock::now();
  std::int64_t sent = 0;
  for (double time = 0; time < seconds; time = seconds_since(start)) {
    for (; static_cast<double>(sent) < time * 4 * ranks.size(); ++sent) {
      const int rank = 1 + static_cast<int>(sent % ranks.size());
      ranks.send(rank);
      while (ranks.receive(rank)) {
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void measure(int count) {
  comm::Activities activities;
  std::atomic<double> used = 0;
  std::atomic<int> known = 0;
  const auto observed = [&](std::span<const comm::Peer> peers, double now) {
    activities.publish(activities_of(peers, now));
    known = static_cast<int>(activities.last().size()) - 1;
    used = thread_seconds();
  };
  comm::Heartbeat heartbeat(comm::Group::pretended(0, count + 1), {},
                            {.next_task = [](int) { return comm::TaskMessage(); },
                             .task_received = [](int, const comm::TaskMessage&) { return false; },
                             .observed = observed});
  test::ManyRanks ranks(heartbeat.announcement());
  const Clock::time_point begun = Clock::now();
  ranks.connect(count);
  while (known < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const double connecting = seconds_since(begun);
  beat_for(ranks, 1);
  const double before = used;
  const Clock::time_point start = Clock::now();
  beat_for(ranks, 8);
  fmt::print("{} ranks: connected in {:.2f} s, {:.4f} CPU seconds a second\n", count, connecting,
             (used - before) / seconds_since(start));
  ranks.leave();
  ranks.close();
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(
      argc, argv,
      [](const std::vector<std::string>& words) {
        raise_max_open_files();
        for (const std::string& word :
             words.empty() ? std::vector<std::string>{"64", "512", "4096"} : words) {
          measure(std::stoi(word));
        }
      },
      "bench_heartbeat [RANKS...]");
}
