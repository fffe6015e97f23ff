#include "base/trace.hpp"

#include <chrono>

#include "base/device_spans.hpp"

namespace reelmesh::trace {

std::int64_t now_ns() {
  using clock = std::chrono::steady_clock;
  static const clock::time_point start = clock::now();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - start).count();
}

void Scope::open(const SpanKind& kind) {
  Recorder& r = recorder();
  if (r.level >= kind.level || kind.level == Level::stages) {
    level_ = kind.level;
    span_.emplace();
    span_->name = kind.name;
    span_->lane = kind.lane;
    if (r.device_spans == nullptr) {
      span_->start_ns = now_ns();
    } else if (kind.level == Level::stages) {
      span_->start_ns = r.device_spans->settle();
    } else {
      pending_ = r.device_spans->begin();
    }
    span_->bytes = -r.bytes_sent;
    span_->flops = -r.flops;
    span_->memory_bytes = -r.memory_bytes;
  }
  if (kind.level == Level::stages) {
    stage_before_ = r.stage;
    r.stage = kind.name;
  }
  if (profiler_ranges.begin != nullptr) profiler_ranges.begin(kind.name);
  open_ = true;
}

void Scope::close() noexcept {
  Recorder& r = recorder();
  if (profiler_ranges.end != nullptr) profiler_ranges.end();
  if (stage_before_ != nullptr) r.stage = stage_before_;
  if (!span_) return;
  span_->bytes += r.bytes_sent;
  span_->flops += r.flops;
  span_->memory_bytes += r.memory_bytes;
  span_->clip = r.clip;
  span_->step = r.step;
  span_->layer = r.layer;
  if (pending_ != nullptr) {
    r.device_spans->end(*pending_, *span_);
  } else {
    const std::int64_t end =
        r.device_spans == nullptr ? now_ns() : r.device_spans->settle_keeping_errors();
    span_->duration_ns = end - span_->start_ns;
    if (level_ == Level::stages) {
      Total& total = r.stages[span_->name];
      ++total.count;
      total.duration_ns += span_->duration_ns;
    }
    if (r.level < level_) return;
    r.spans.push_back(*span_);
  }
  if (r.span_ended && level_ <= Level::layers) r.span_ended(level_);
}

void record(const SpanKind& kind, std::int64_t start_ns) noexcept {
  Recorder& r = recorder();
  const std::int64_t duration_ns = now_ns() - start_ns;
  Total& total = r.stages[kind.name];
  ++total.count;
  total.duration_ns += duration_ns;
  if (r.level < kind.level) return;
  r.spans.push_back(
      {.name = kind.name, .lane = kind.lane, .start_ns = start_ns, .duration_ns = duration_ns});
}

void record_wait(std::int64_t start_ns) noexcept {
  constexpr std::int64_t shortest_ns = 100'000, pause_ns = 1'000'000;
  Recorder& r = recorder();
  if (*r.stage != '\0') return;
  Span* const last = r.spans.empty() ? nullptr : &r.spans.back();
  const std::int64_t now = now_ns();
  if (last != nullptr && last->name == spans::wait.name &&
      start_ns - last->start_ns - last->duration_ns < pause_ns) {
    const std::int64_t longer = now - last->start_ns - last->duration_ns;
    last->duration_ns += longer;
    r.stages[spans::wait.name].duration_ns += longer;
  } else if (now - start_ns >= shortest_ns) {
    record(spans::wait, start_ns);
  }
}

Mark::Mark(Relaxed<int> Recorder::*field, int value) : field_(field), before_(recorder().*field) {
  recorder().*field = value;
}

Mark::~Mark() { recorder().*field_ = before_; }

}  // namespace reelmesh::trace
