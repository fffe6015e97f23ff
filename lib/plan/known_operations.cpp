#include "plan/known_operations.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace reelmesh {
namespace {

// What a byte counts beside an operation if the known times do not tell. About as many operations
// as processors do while they fetch a byte.
constexpr double usual_flops_of_byte = 16;

// Neighbours in work that count as one: means of logarithms.
struct Pool {
  double work = 0, seconds = 0;
  std::vector<double> members;  // their seconds
};

std::vector<Pool> pooled(const std::vector<TimedOperation>& known, double flops_of_byte) {
  std::vector<Pool> sorted;
  for (const TimedOperation& one : known) {
    const double seconds = std::log(one.seconds);
    sorted.push_back({std::log(one.flops + flops_of_byte * one.bytes), seconds, {seconds}});
  }
  std::ranges::sort(sorted, {},
                    [](const Pool& pool) { return std::pair(pool.work, pool.seconds); });
  std::vector<Pool> pools;
  for (Pool& next : sorted) {
    constexpr double same_work = 1e-9;
    while (!pools.empty() &&
           (pools.back().seconds >= next.seconds || pools.back().work + same_work >= next.work)) {
      Pool& last = pools.back();
      const auto a = static_cast<double>(last.members.size());
      const auto b = static_cast<double>(next.members.size());
      next.work = (a * last.work + b * next.work) / (a + b);
      next.seconds = (a * last.seconds + b * next.seconds) / (a + b);
      next.members.insert(next.members.end(), last.members.begin(), last.members.end());
      pools.pop_back();
    }
    pools.push_back(std::move(next));
  }
  return pools;
}

// How far the times are from growing with the work, and a little of how much the rate varies.
double misfit(const std::vector<Pool>& pools) {
  constexpr double weight_of_rate = 0.01;
  double misfit = 0;
  for (const Pool& pool : pools) {
    for (const double seconds : pool.members) {
      misfit += (seconds - pool.seconds) * (seconds - pool.seconds);
    }
  }
  for (std::size_t i = 1; i < pools.size(); ++i) {
    misfit += weight_of_rate * std::abs((pools[i].work - pools[i].seconds) -
                                        (pools[i - 1].work - pools[i - 1].seconds));
  }
  return misfit;
}

}  // namespace

KnownOperations::KnownOperations(std::vector<TimedOperation> known)
    : known_(std::move(known)), flops_of_byte_(usual_flops_of_byte) {
  std::vector<Pool> best = pooled(known_, flops_of_byte_);
  double min = misfit(best);
  constexpr int steps_of_octave = 4, first = -2, last = 12;  // 1/4 to 4096
  for (int step = first * steps_of_octave; step <= last * steps_of_octave; ++step) {
    const double flops_of_byte = std::exp2(static_cast<double>(step) / steps_of_octave);
    std::vector<Pool> pools = pooled(known_, flops_of_byte);
    constexpr double rounding = 1e-9;
    if (const double its = misfit(pools); its < min - rounding) {
      min = its;
      flops_of_byte_ = flops_of_byte;
      best = std::move(pools);
    }
  }
  for (const Pool& pool : best) nodes_.push_back({std::exp(pool.work), std::exp(pool.seconds)});
}

double KnownOperations::seconds(double flops, double bytes) const {
  const double work = flops + flops_of_byte_ * bytes;
  const Node& smallest = nodes_.front();
  const Node& largest = nodes_.back();
  if (work >= largest.work) return largest.seconds * (work / largest.work);
  const auto after = std::ranges::upper_bound(nodes_, work, {}, &Node::work);
  const auto right = after == nodes_.begin() ? std::next(after) : after;
  const double proportional = smallest.seconds * (work / smallest.work);
  if (right == nodes_.end() || work <= 0) return proportional;
  const Node& left = *std::prev(right);
  const double line = left.seconds + (right->seconds - left.seconds) *
                                         ((work - left.work) / (right->work - left.work));
  // Below the smallest the line goes on to its latency, unless that were negative.
  return after == nodes_.begin() ? std::max(line, proportional) : line;
}

}  // namespace reelmesh
