#include "pipeline/report.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "base/report.hpp"
#include "base/units.hpp"
#include "comm/group_values.hpp"

namespace reelmesh::pipeline {
namespace {

constexpr std::array stages{
    trace::spans::prepare,        trace::spans::hash,         trace::spans::check_inputs,
    trace::spans::copy_weights,   trace::spans::load,         trace::spans::encode,
    trace::spans::encode_image,   trace::spans::encode_video, trace::spans::denoise_step,
    trace::spans::reuse_step,     trace::spans::train_step,   trace::spans::validate,
    trace::spans::measure_change, trace::spans::make_samples, trace::spans::save,
    trace::spans::decode,         trace::spans::handover,     trace::spans::write,
    trace::spans::write_trace,    trace::spans::wait};

struct RankTotals {
  std::array<double, stages.size()> seconds{};
  std::array<std::int64_t, stages.size()> count{};
  std::int64_t flops = 0, bytes_sent = 0, bytes_fetched = 0, peak_memory_bytes = 0;
  std::int64_t padded_products = 0;
  std::int64_t peak_device_memory_bytes = 0;
  std::array<std::int64_t, purposes> memory_at_peak{};
};

// "35.9 ms": of one call.
std::string short_seconds(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : format_seconds(seconds);
}

// The totals of one rank.
RankTotals add_up(const trace::Recorder& recorder, const Totals& totals) {
  RankTotals mine;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const auto found = recorder.stages.find(stages[i].name);
    if (found == recorder.stages.end()) continue;
    mine.seconds[i] = static_cast<double>(found->second.duration_ns) * 1e-9;
    mine.count[i] = found->second.count;
  }
  mine.flops = recorder.flops;
  mine.bytes_sent = recorder.bytes_sent;
  mine.bytes_fetched = recorder.bytes_fetched;
  mine.padded_products = recorder.padded_products;
  mine.peak_memory_bytes = totals.peak_memory_bytes;
  mine.peak_device_memory_bytes = totals.peak_device_memory_bytes;
  mine.memory_at_peak = totals.memory.at_peak;
  return mine;
}

// "GPU kernels: attention: cuDNN 9.19.0; products: cuBLASLt 13.1.0", of all ranks; empty if there
// are none. On rank 0; empty on the others. Collective.
std::string kernels_of_all(const comm::Group& world, const trace::Recorder& mine) {
  std::set<std::string> all;
  const std::vector<std::string> own(mine.kernels.begin(), mine.kernels.end());
  for (const std::vector<std::string>& kernels : comm::gather_texts(world, own, 0)) {
    all.insert(kernels.begin(), kernels.end());
  }
  return all.empty() ? "" : fmt::format("GPU kernels: {}\n", fmt::join(all, "; "));
}

}  // namespace

std::string closing_report(const comm::Group& world, const trace::Recorder& mine,
                           const Totals& totals) {
  const std::vector<RankTotals> ranks = comm::gather_value(world, add_up(mine, totals), 0);
  const std::string kernels = kernels_of_all(world, mine);
  if (world.rank() != 0) return {};

  Table table({"stage", "ranks", "min", "mean", "max", "calls", "per call"});
  for (std::size_t i = 0; i < stages.size(); ++i) {
    double min = std::numeric_limits<double>::infinity(), max = 0, sum = 0;
    std::int64_t taking_part = 0, max_calls = 0;
    for (const RankTotals& rank : ranks) {
      if (rank.count[i] == 0) continue;
      ++taking_part;
      min = std::min(min, rank.seconds[i]);
      max = std::max(max, rank.seconds[i]);
      sum += rank.seconds[i];
      max_calls = std::max(max_calls, rank.count[i]);
    }
    if (taking_part == 0) continue;
    table.row({stages[i].name, std::to_string(taking_part), format_seconds(min),
               format_seconds(sum / static_cast<double>(taking_part)), format_seconds(max),
               std::to_string(max_calls), short_seconds(max / static_cast<double>(max_calls))});
  }
  std::int64_t flops = 0, bytes = 0, fetched = 0, padded = 0;
  for (const RankTotals& rank : ranks) {
    flops += rank.flops;
    bytes += rank.bytes_sent;
    fetched += rank.bytes_fetched;
    padded += rank.padded_products;
  }
  // "64.65 MiB", "64.65 MiB to 65.36 MiB"
  const auto memory_range = [&](std::int64_t RankTotals::*memory) {
    const auto [min, max] = std::ranges::minmax(ranks, {}, memory);
    const std::string low = format_bytes(static_cast<double>(min.*memory));
    const std::string high = format_bytes(static_cast<double>(max.*memory));
    return low == high ? high : fmt::format("{} to {}", low, high);
  };
  std::string memory = memory_range(&RankTotals::peak_memory_bytes);
  if (totals.peak_device_memory_bytes > 0) {
    memory += fmt::format(" on the host, {} on the GPU",
                          memory_range(&RankTotals::peak_device_memory_bytes));
  }
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  // "weights 30 MiB, activations 5 MiB": of the rank whose tensors take most, the largest first.
  const RankTotals& largest = std::ranges::max(ranks, {}, [](const RankTotals& rank) {
    return std::accumulate(rank.memory_at_peak.begin(), rank.memory_at_peak.end(), std::int64_t{0});
  });
  std::vector<std::pair<std::int64_t, const char*>> parts;
  for (std::size_t i = 0; i < purposes; ++i) {
    const std::int64_t part = largest.memory_at_peak[i];
    if (part > 0) parts.emplace_back(part, purpose_names[i]);
  }
  std::ranges::sort(parts, std::ranges::greater());
  std::string purposes_of_memory;
  for (const auto& [part, name] : parts) {
    purposes_of_memory += fmt::format("{}{} {}", purposes_of_memory.empty() ? "" : ", ", name,
                                      format_bytes(number(part)));
  }
  return "\nTime of a rank in each stage\n" + table.str() +
         fmt::format(
             "\n{} {}{} in {}: {:.3g} TFLOP at {:.3g} GFLOP/s, {} sent{}; peak memory of a "
             "rank {}; tensors: {}\n",
             totals.done, totals.unit, totals.done == 1 ? "" : "s",
             format_seconds(totals.wall_seconds), number(flops) * 1e-12,
             number(flops) * 1e-9 / totals.wall_seconds, format_bytes(number(bytes)),
             fetched == 0 ? ""
                          : fmt::format(", {} of weights fetched", format_bytes(number(fetched))),
             memory, purposes_of_memory.empty() ? "none" : purposes_of_memory) +
         kernels +
         (padded == 0 ? ""
                      : fmt::format("{} matrix products were computed with padded rows, which is "
                                    "slower: cuBLASLt has no algorithm with the same bits for "
                                    "their numbers of rows\n",
                                    padded));
}

}  // namespace reelmesh::pipeline
