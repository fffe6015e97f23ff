#pragma once
// Time spans and messages of this rank, kept in memory until lib/store writes them. Only the thread
// that runs the pipeline records, so no lock is needed.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/profiler.hpp"
#include "base/relaxed.hpp"
#include "base/span_names.hpp"
#include "base/trace_message.hpp"

namespace reelmesh::trace {

/// Nanoseconds of a steady clock since the first call.
std::int64_t now_ns();

struct Span {
  const char* name = "";  ///< as of a SpanKind
  const char* lane = "";
  int clip = -1;   ///< index of the clip in the job, −1: none
  int step = -1;   ///< sampler step, −1: none
  int layer = -1;  ///< layer, −1: none
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;
  std::int64_t bytes = 0;         ///< sent by this rank within the span
  std::int64_t flops = 0;         ///< as Recorder::flops, within the span
  std::int64_t memory_bytes = 0;  ///< as Recorder::memory_bytes, within the span
};

class DeviceSpans;
struct PendingSpan;

/// Of all spans with one name.
struct Total {
  std::int64_t count = 0, duration_ns = 0;
};

/// The spans and messages of this rank that are not yet written, what it does now, and running
/// totals, which are counted at every level.
class Recorder {
 public:
  Level level = Level::stages;
  // What the pipeline's thread does now; other threads may read it.
  Relaxed<const char*> stage = "";         ///< the name of the running span of Level::stages
  Relaxed<const char*> waiting = nullptr;  ///< the call in which it waits for other ranks
  Relaxed<std::int64_t> waits = 0;         ///< running total of such calls, and of note_progress()
  Relaxed<int> clip = -1;
  Relaxed<int> step = -1;
  Relaxed<int> layer = -1;
  /// Steps of clips, on the first rank of those that compute them; running total, counted by
  /// lib/pipeline.
  Relaxed<std::int64_t> clip_steps = 0;
  /// For the watchdog: a part of a file is written, read or on the disk.
  void note_progress() { waits = waits + 1; }
  std::int64_t bytes_sent = 0;  ///< running total, counted by lib/comm
  /// Of matrix products, attention, convolutions and norms (a few per cent in small models, less in
  /// others); running total, counted by lib/ops.
  std::int64_t flops = 0;
  /// That these operations read and write in the device's memory at least: each operand and result
  /// once, in its type; running total, counted by lib/ops.
  std::int64_t memory_bytes = 0;
  /// Of weights, from other ranks or from host memory; running total, counted by lib/layout.
  std::int64_t bytes_fetched = 0;
  /// Matrix products on a GPU whose rows were padded, because no algorithm with the same bits
  /// supports their number; running total, counted by lib/ops.
  std::int64_t padded_products = 0;
  /// What computes on this rank's GPU: "products: cuBLASLt 13.1.0", "attention: own kernels". Noted
  /// by lib/ops at the first use.
  std::set<std::string> kernels;
  /// Of the spans of Level::stages, by name.
  std::map<std::string_view, Total> stages;
  /// Clips that wait on this rank for their next stage: to be denoised on the first rank in phased
  /// mode, on the leader of the text ranks in split mode; to be decoded on the leader of the
  /// decoding ranks. Counted by lib/pipeline.
  std::int64_t clips_waiting = 0;
  std::vector<Span> spans;  ///< in the order of their ends
  std::vector<Message> messages;
  int hand_overs = 0;  ///< HandOverMark objects that exist
  /// Whether messages that begin now are recorded; the same for sender and receiver.
  bool records_messages() const {
    return level >= Level::ops || (hand_overs > 0 && level >= Level::stages);
  }
  /// Called after a span of Level::stages or Level::layers has been recorded. Must not throw.
  std::function<void(Level)> span_ended;
  /// If this rank computes on a GPU: spans that its work has not reached yet, and the GPU's clock.
  std::shared_ptr<DeviceSpans> device_spans;
};

/// Where this thread records instead, in a dry run (tensor/ledger.hpp).
inline constinit thread_local Recorder* other_recorder = nullptr;

/// The recorder of this process. Never destroyed.
inline Recorder& recorder() {
  if (other_recorder != nullptr) return *other_recorder;
  static Recorder& instance = *new Recorder;
  return instance;
}

/// Records a span from its construction to its destruction, with the bytes and flops in between.
/// One of Level::stages is counted in Recorder::stages also at a level at which it is not recorded.
///
/// Without a GPU it measures the host's time. With a GPU:
/// - Level::stages: the host's time, after waiting for the GPU at both ends.
/// - Level::layers and ops: the time of the compute stream, without a wait: from when all earlier
///   work is done until the work enqueued within the span is done. It is known, and the span is in
///   Recorder::spans, at the end of the stage (DeviceSpans). Work on other streams (messages,
///   weights that are fetched) counts as far as the compute stream waits for it within the span,
///   so an exchange that computation hides has a short span.
///
/// The constructor throws errors of the GPU; the destructor keeps them for the next constructor.
class Scope {
 public:
  explicit Scope(const SpanKind& kind) {
    if (kind.level == Level::stages || recorder().level >= kind.level ||
        profiler_ranges.begin != nullptr) {
      open(kind);
    }
  }
  ~Scope() {
    if (open_) close();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  void open(const SpanKind& kind);
  void close() noexcept;

  bool open_ = false;
  Level level_ = Level::stages;
  const char* stage_before_ = nullptr;  ///< only for a span of Level::stages
  std::optional<Span> span_;            ///< if it is recorded or counted
  PendingSpan* pending_ = nullptr;      ///< if the GPU measures it
};

/// Records and counts a span of Level::stages, of the host's time from start_ns until now, without
/// clip and step. Nothing is written at its end.
void record(const SpanKind& kind, std::int64_t start_ns) noexcept;
/// The same for spans::wait outside all stages; nothing within one, which contains its waits. A
/// wait that begins within 1 ms after another one, with nothing recorded in between, continues
/// that one; otherwise waits of less than 0.1 ms are left out.
void record_wait(std::int64_t start_ns) noexcept;

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

/// In its scope messages hand data over from stage to stage; those are recorded at every level.
class HandOverMark {
 public:
  HandOverMark() { ++recorder().hand_overs; }
  ~HandOverMark() { --recorder().hand_overs; }
  HandOverMark(const HandOverMark&) = delete;
  HandOverMark& operator=(const HandOverMark&) = delete;
};

}  // namespace reelmesh::trace
