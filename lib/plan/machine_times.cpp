#include "plan/machine_times.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace reelmesh {
namespace {

// What a byte of memory counts beside an operation, so that the work of operations with few of
// them, or none, is not 0. About as many operations as processors do while they fetch a byte.
constexpr double flops_of_byte = 16;

double work(double flops, double bytes) { return flops + flops_of_byte * bytes; }

// How unlike two operations are: by operations per byte, and less so by size.
double distance(const TimedOperation& a, double flops, double bytes) {
  const auto intensity = [](double f, double b) { return std::log((f + b) / b); };
  const double by_intensity = intensity(a.flops, a.bytes) - intensity(flops, bytes);
  const double by_size = std::log(work(a.flops, a.bytes) / work(flops, bytes));
  constexpr double weight_of_size = 0.1;
  return by_intensity * by_intensity + weight_of_size * by_size * by_size;
}

class RankTimes final : public TimeModel {
 public:
  RankTimes(std::shared_ptr<const MachineTimes> machine, const TimedRanks& ranks)
      : machine_(std::move(machine)), ranks_(ranks) {}

  double operation(std::string_view kind, DType dtype, std::int64_t flops,
                   std::int64_t bytes) const override {
    return machine_->operation(kind, dtype, static_cast<double>(flops), static_cast<double>(bytes),
                               ranks_.busy, ranks_.threads);
  }
  double exchange(int rank, std::span<const Transfer> transfers) const override {
    double seconds = 0;
    for (const Transfer& transfer : transfers) {
      const Link& link = this->link(rank, transfer.peer);
      seconds += link.latency + static_cast<double>(transfer.bytes) / link.bytes_per_s;
    }
    return exchange_share(rank, transfers) > 0
               ? seconds * machine_->crowding(ranks_.busy, ranks_.threads)
               : seconds;
  }
  double exchange_share(int rank, std::span<const Transfer> transfers) const override {
    double share = 0;
    for (const Transfer& transfer : transfers) {
      share = std::max(share, link(rank, transfer.peer).share);
    }
    return share;
  }

 private:
  const Link& link(int rank, int peer) const {
    const bool near = rank / ranks_.of_node == peer / ranks_.of_node;
    return or_never(near ? machine_->node : machine_->network);
  }

  std::shared_ptr<const MachineTimes> machine_;
  TimedRanks ranks_;
};

}  // namespace

const DTypeTimes& MachineTimes::of(DType dtype, int busy) const {
  const auto in_shared = shared.find(dtype);
  if (busy > 1 && in_shared != shared.end()) return in_shared->second;
  const auto found = alone.find(dtype);
  require(found != alone.end(), Status::data,
          "{}: section [{}] is missing, expected the times of the job's numerics.dtype", file,
          name_of(dtype));
  return found->second;
}

double MachineTimes::crowding(int busy, int rank_threads) const {
  if (on_gpu) return 1;
  const double of_core = static_cast<double>(busy) * rank_threads / cores;
  return of_core <= 1 ? 1 : of_core * crowded;
}

double MachineTimes::operation(std::string_view kind, DType dtype, double flops, double bytes,
                               int busy, int rank_threads) const {
  if (work(flops, bytes) <= 0) return 0;
  const DTypeTimes& times = of(dtype, busy);
  const auto found = times.operations.find(kind);
  require(found != times.operations.end() && !found->second.empty(), Status::data,
          "{}: no time of `{}` in section [{}], which the job needs", file, kind, name_of(dtype));
  // The rate is the mean of those of the nearest, weighted by 1/distance, in logarithms.
  bytes = std::max(bytes, 1.0);
  constexpr std::size_t nearest = 3;
  std::vector<std::pair<double, double>> rates;  // distance, logarithm of the rate
  for (const TimedOperation& known : found->second) {
    rates.emplace_back(distance(known, flops, bytes),
                       std::log(work(known.flops, known.bytes) / known.seconds));
  }
  const std::size_t used = std::min(nearest, rates.size());
  std::ranges::partial_sort(rates, rates.begin() + static_cast<std::ptrdiff_t>(used));
  double sum = 0, weights = 0;
  for (std::size_t i = 0; i < used; ++i) {
    const double weight = 1 / (rates[i].first + 1e-6);
    sum += weight * rates[i].second;
    weights += weight;
  }
  const double seconds = work(flops, bytes) / std::exp(sum / weights);
  if (on_gpu) return seconds;  // whatever threads its rank has
  return seconds * crowding(busy, rank_threads) * threads / rank_threads;
}

double MachineTimes::load(DType dtype, int busy, bool autoencoder) const {
  const DTypeTimes& times = of(dtype, busy);
  return (autoencoder ? times.load_convolutions : times.load) / crowding(busy, 1);
}

std::shared_ptr<const TimeModel> time_model(std::shared_ptr<const MachineTimes> machine,
                                            const TimedRanks& ranks) {
  return std::make_shared<const RankTimes>(std::move(machine), ranks);
}

}  // namespace reelmesh
