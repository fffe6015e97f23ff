#pragma once
// How long a machine takes for what a dry run counts.
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.hpp"

namespace reelmesh {

/// Seconds of one rank by what takes them.
struct Elapsed {
  double computation = 0;  ///< products, attention, convolutions
  double memory = 0;       ///< norms, sums and copies, whose time is that of the memory
  double network = 0;      ///< messages, with the wait for them

  double total() const { return computation + memory + network; }
  Elapsed& operator+=(const Elapsed& other) {
    computation += other.computation;
    memory += other.memory;
    network += other.network;
    return *this;
  }
  friend Elapsed operator+(Elapsed a, const Elapsed& b) { return a += b; }
  friend Elapsed operator-(const Elapsed& a, const Elapsed& b) {
    return {a.computation - b.computation, a.memory - b.memory, a.network - b.network};
  }
  friend Elapsed operator*(double factor, const Elapsed& a) {
    return {factor * a.computation, factor * a.memory, factor * a.network};
  }
};

/// Seconds that stand for "never": of messages over a link whose rates are not known. Finite, so
/// that sums and differences of such times are numbers.
constexpr double never = 1e100;
inline bool ends(double seconds) { return seconds < 1e-50 * never; }

/// A message between a rank and another of its group.
struct Transfer {
  int peer = 0;
  std::int64_t bytes = 0;
};

/// The speeds of a rank and of its links, all in seconds.
class TimeModel {
 public:
  TimeModel() = default;
  TimeModel(const TimeModel&) = delete;
  TimeModel& operator=(const TimeModel&) = delete;
  virtual ~TimeModel() = default;

  /// Of an operation. kind: as Ledger::note_operation; dtype: of the job's tensors; bytes: read and
  /// written.
  virtual double operation(std::string_view kind, DType dtype, std::int64_t flops,
                           std::int64_t bytes) const = 0;
  /// Until messages that a rank of a group begins at the same time have arrived. transfers: what it
  /// sends, or receives, whichever is more.
  virtual double exchange(int rank, std::span<const Transfer> transfers) const = 0;
  /// The part of that time in which the rank cannot compute, 0 to 1.
  virtual double exchange_share(int rank, std::span<const Transfer> transfers) const = 0;
};

}  // namespace reelmesh
