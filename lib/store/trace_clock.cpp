#include "store/trace_clock.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/trace.hpp"

namespace reelmesh {
namespace {

// Messages within its scope are neither recorded nor counted.
struct Pause {
  trace::Level level = std::exchange(trace::recorder().level, trace::Level::off);
  std::int64_t bytes_sent = trace::recorder().bytes_sent;
  ~Pause() {
    trace::recorder().level = level;
    trace::recorder().bytes_sent = bytes_sent;
  }
};

// The kernel slews clocks by at most this much; more is an error of the comparisons.
constexpr double max_drift = 500e-6;

double drift(const TraceClock& clock) {
  if (clock.end_ns <= clock.start_ns) return 0;
  const double measured = static_cast<double>(clock.end_offset_ns - clock.start_offset_ns) /
                          static_cast<double>(clock.end_ns - clock.start_ns);
  return std::clamp(measured, -max_drift, max_drift);
}

}  // namespace

std::int64_t clock_offset_ns(const comm::Group& group) {
  constexpr int round_trips = 20;
  const Pause pause;
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  std::int64_t offset = 0;
  const auto message = [](int peer, std::int64_t& value) {
    return comm::Message{peer, Tensor::wrap(&value, {sizeof value}, DType::uint8, nullptr)};
  };
  std::int64_t theirs = 0;
  for (int rank = 1; rank < group.size(); ++rank) {
    for (int i = 0; i < round_trips; ++i) {
      if (group.rank() == 0) {
        group.exchange({}, std::vector{message(rank, theirs)});
        theirs = trace::now_ns();
        group.exchange(std::vector{message(rank, theirs)}, {});
      } else if (group.rank() == rank) {
        std::int64_t sent = trace::now_ns();
        const std::int64_t start = sent;
        group.exchange(std::vector{message(0, sent)}, {});
        group.exchange({}, std::vector{message(0, theirs)});
        const std::int64_t trip = trace::now_ns() - start;
        if (trip < best) {
          best = trip;
          offset = theirs - (start + trip / 2);
        }
      }
    }
  }
  return offset;
}

std::int64_t TraceClock::on_first_rank(std::int64_t own_ns) const {
  const double since = static_cast<double>(std::clamp(own_ns, start_ns, end_ns) - start_ns);
  return own_ns + start_offset_ns + std::llround(drift(*this) * since);
}

std::int64_t TraceClock::drift_ppb() const { return std::llround(1e9 * drift(*this)); }

}  // namespace reelmesh
