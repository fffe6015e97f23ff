#include "plan/machine_times.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace reelmesh {
namespace {

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
  if (flops <= 0 && bytes <= 0) return 0;
  const DTypeTimes& times = of(dtype, busy);
  const auto found = times.operations.find(kind);
  require(found != times.operations.end() && !found->second.empty(), Status::data,
          "{}: no time of `{}` in section [{}], which the job needs", file, kind, name_of(dtype));
  const double seconds = found->second.seconds(flops, bytes);
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
