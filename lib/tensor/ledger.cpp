#include "tensor/ledger.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "tensor/block_range.hpp"

namespace reelmesh {
namespace {

thread_local Ledger* active_ledger = nullptr;

// Larger blocks, which no host has room for, are only added up: pages of a range are listed.
constexpr std::int64_t max_range_block = std::int64_t{1} << 36;

}  // namespace

// Large blocks of a host are in a range, all others are only added up.
struct Ledger::Memory {
  BlockRange range{std::numeric_limits<std::int64_t>::max()};
  std::int64_t others = 0, peak = 0, peak_in_use = 0;
  std::array<std::int64_t, purposes> by_purpose{};

  std::int64_t present() const { return others + range.used(); }
  void note_peak() {
    peak = std::max(peak, others + range.resident());
    peak_in_use = std::max(peak_in_use, present());
  }
  void release() {
    range.release();
    peak = peak_in_use = 0;
    note_peak();
  }
};

Ledger::Ledger(const Precision& precision, std::shared_ptr<const TimeModel> times)
    : precision_(precision),
      device_(std::make_shared<Memory>()),
      host_(device_),
      times_(std::move(times)) {
  recorder_.level = trace::Level::off;
  if (precision.on_gpu) host_ = std::make_shared<Memory>();
}

DryRun::DryRun(Ledger& ledger)
    : ledger_before_(std::exchange(active_ledger, &ledger)),
      recorder_before_(std::exchange(trace::other_recorder, &ledger.recorder_)) {}

DryRun::~DryRun() {
  active_ledger = ledger_before_;
  trace::other_recorder = recorder_before_;
}

Ledger* Ledger::active() { return active_ledger; }

Ledger& Ledger::current() {
  expect(active_ledger != nullptr, "a tensor of shapes outside a dry run");
  return *active_ledger;
}

std::shared_ptr<const void> Ledger::allocate(Device device, std::int64_t bytes) {
  const std::shared_ptr<Memory>& memory = device.is_cuda() ? device_ : host_;
  const auto purpose = static_cast<std::size_t>(current_purpose());
  require(bytes <= std::numeric_limits<std::int64_t>::max() - memory->present(),
          Status::unavailable, "a dry run takes more than all addresses");
  if (!device.is_cuda() && bytes >= min_range_block && bytes <= max_range_block &&
      current_purpose() != Purpose::queue) {
    const std::int64_t length = BlockRange::length_of(bytes);
    const auto first = memory->range.take(length);
    expect(first.has_value(), "a range of all addresses is full");
    memory->by_purpose[purpose] += length;
    memory->note_peak();
    return {static_cast<const void*>(nullptr), [memory, first, length, purpose](const void*) {
              memory->range.give_back(*first, length);
              memory->by_purpose[purpose] -= length;
            }};
  }
  memory->others += bytes;
  memory->by_purpose[purpose] += bytes;
  memory->note_peak();
  return {static_cast<const void*>(nullptr), [memory, bytes, purpose](const void*) {
            memory->others -= bytes;
            memory->by_purpose[purpose] -= bytes;
          }};
}

std::int64_t Ledger::present() const { return device_->present(); }
std::int64_t Ledger::peak() const { return device_->peak; }
std::int64_t Ledger::host_peak() const { return host_ != device_ ? host_->peak : 0; }
std::int64_t Ledger::peak_in_use() const { return device_->peak_in_use; }
std::array<std::int64_t, purposes> Ledger::present_by_purpose() const {
  return device_->by_purpose;
}

void Ledger::release() {
  peers_.clear();
  device_->release();
  if (host_ != device_) host_->release();
}

void Ledger::note_scratch(std::size_t slot, std::int64_t bytes) {
  scratch_.at(slot) = std::max(scratch_[slot], bytes);
}

std::int64_t Ledger::scratch() const {
  return std::accumulate(scratch_.begin(), scratch_.end(), std::int64_t{0});
}

void Ledger::note_operation(const char* kind, std::int64_t flops, std::int64_t bytes) {
  Total& total = operations_[kind];
  ++total.count;
  total.flops += flops;
  total.bytes += bytes;
  if (times_ == nullptr) return;
  constexpr std::array<std::string_view, 4> of_memory{
      trace::spans::norm.name, operation_kinds::group_norm, operation_kinds::group_sums,
      operation_kinds::copy};
  const bool memory = std::ranges::find(of_memory, kind) != of_memory.end();
  const double seconds = times_->operation(kind, precision_.tensors, flops, bytes);
  total.seconds += seconds;
  (memory ? elapsed_.memory : elapsed_.computation) += seconds;
}

double Ledger::begin_exchange(int rank, std::span<const Transfer> transfers) {
  if (times_ == nullptr) return 0;
  const double seconds = times_->exchange(rank, transfers);
  link_free_ = std::max(link_free_, elapsed_.total()) + seconds;
  elapsed_.network += times_->exchange_share(rank, transfers) * seconds;
  return link_free_;
}

void Ledger::wait_until(double arrival) {
  elapsed_.network += std::max(0.0, arrival - elapsed_.total());
}

}  // namespace reelmesh
