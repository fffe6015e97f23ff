#pragma once
#include "base/trace.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::ops {

/// What an operation computes, and what it reads and writes in the device's memory at least: each
/// operand and result once, in its type. Biases of products and convolutions are left out.
struct Work {
  std::int64_t flops = 0, bytes = 0;
};

/// Counts the work of one operation, and records its span at Level::ops. Made by the public
/// function of each operation for both backends: spans with one name do not nest.
class Operation {
 public:
  /// kind: of Level::ops. timed_as: as Ledger::note_operation, if not the kind's name.
  Operation(const trace::SpanKind& kind, const Work& work, const char* timed_as = nullptr)
      : scope_(kind) {
    trace::recorder().flops += work.flops;
    trace::recorder().memory_bytes += work.bytes;
    if (Ledger* ledger = Ledger::active()) {
      ledger->note_operation(timed_as != nullptr ? timed_as : kind.name, work.flops, work.bytes);
    }
  }

 private:
  trace::Scope scope_;
};

/// Floating-point operations that norms take for an element, a square root or exp counted as one;
/// those for a whole row are left out. They are few compared with those of the products between the
/// norms: 2 for each channel of an element.
namespace norm_flops {
inline constexpr std::int64_t rms = 4;    ///< x², Σ; ·rstd·weight
inline constexpr std::int64_t layer = 8;  ///< Σ; −mean, ², Σ; −mean, ·rstd·weight + bias
inline constexpr std::int64_t modulate = 3;    ///< ·(1 + scale) + shift
inline constexpr std::int64_t rotate = 3;      ///< ·cosine ± other·sine
inline constexpr std::int64_t group_sums = 3;  ///< Σ; x², Σ
inline constexpr std::int64_t group = 2;       ///< ·factor + offset
inline constexpr std::int64_t silu = 4;        ///< x/(1 + exp(−x))
}  // namespace norm_flops

}  // namespace reelmesh::ops
