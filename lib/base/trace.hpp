#pragma once
// Time spans of this rank, kept in memory until lib/store writes them. Only the thread that runs
// the pipeline records, so no lock is needed.
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/relaxed.hpp"

namespace reelmesh::trace {

enum class Level { off, stages, layers, ops };

/// Nanoseconds of a steady clock since the first call.
std::int64_t now_ns();

struct Span {
  const char* name = "";  ///< a string literal
  const char* lane = "";  ///< a string literal: "compute", "exchange", "file"
  int clip = -1;          ///< index of the clip in the job, −1: none
  int step = -1;          ///< sampler step, −1: none
  int layer = -1;         ///< layer, −1: none
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
  std::int64_t bytes = 0;  ///< sent by this rank within the span
  std::int64_t flops = 0;  ///< of matrix products, convolutions and attention within the span
};

/// The spans of this rank, what it does now, and running totals, which are counted at every level.
class Recorder {
 public:
  Level level = Level::stages;
  // What the pipeline's thread does now; other threads may read it.
  Relaxed<const char*> stage = "";         ///< the name of the running span of Level::stages
  Relaxed<const char*> waiting = nullptr;  ///< the call in which it waits for other ranks
  Relaxed<std::int64_t> waits = 0;         ///< running total of such calls
  Relaxed<int> clip = -1;
  Relaxed<int> step = -1;
  Relaxed<int> layer = -1;
  std::int64_t bytes_sent = 0;  ///< running total, counted by lib/comm
  std::int64_t flops = 0;       ///< running total, counted by lib/ops
  /// Of weights, from other ranks or from host memory; running total, counted by lib/layout.
  std::int64_t bytes_fetched = 0;
  /// Matrix products on a GPU whose rows were padded, because no algorithm with the same bits
  /// supports their number; running total, counted by lib/ops.
  std::int64_t padded_products = 0;
  /// What computes on this rank's GPU: "products: cuBLASLt 13.1.0", "attention: own kernels". Noted
  /// by lib/ops at the first use.
  std::set<std::string> kernels;
  std::vector<Span> spans;
  /// Waits for asynchronous work, such as a GPU's. Called at both ends of a span, so that the span
  /// measures the work and not its launch. Must not throw.
  std::function<void()> synchronize;
};

Recorder& recorder();

/// Records a span from its construction to its destruction, with the bytes and flops in between.
class Scope {
 public:
  explicit Scope(const char* name, Level level = Level::stages, const char* lane = "compute");
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool active_;
  const char* stage_before_ = nullptr;  ///< only for a span of Level::stages
  Span span_;
};

/// Sets the clip, step or layer of the spans that end in its scope.
class Mark {
 public:
  Mark(Relaxed<int> Recorder::*field, int value);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

 private:
  Relaxed<int> Recorder::*field_;
  int before_;
};

}  // namespace reelmesh::trace
