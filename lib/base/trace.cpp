#include "base/trace.hpp"

#include <chrono>

#include "base/profiler.hpp"

namespace reelmesh::trace {

std::int64_t now_ns() {
  using clock = std::chrono::steady_clock;
  static const clock::time_point start = clock::now();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - start).count();
}

Recorder& recorder() {
  static Recorder instance;
  return instance;
}

Scope::Scope(const char* name, Level level, const char* lane) {
  Recorder& r = recorder();
  if (profiler_ranges.begin != nullptr) profiler_ranges.begin(name);
  if (level == Level::stages) {
    stage_before_ = r.stage;
    r.stage = name;
  }
  active_ = r.level >= level;
  if (!active_) return;
  if (r.synchronize) r.synchronize();
  span_.name = name;
  span_.lane = lane;
  span_.start_ns = now_ns();
  span_.bytes = -r.bytes_sent;
  span_.flops = -r.flops;
}

Scope::~Scope() {
  Recorder& r = recorder();
  if (profiler_ranges.end != nullptr) profiler_ranges.end();
  if (stage_before_ != nullptr) r.stage = stage_before_;
  if (!active_) return;
  if (r.synchronize) r.synchronize();
  span_.duration_ns = now_ns() - span_.start_ns;
  span_.bytes += r.bytes_sent;
  span_.flops += r.flops;
  span_.clip = r.clip;
  span_.step = r.step;
  span_.layer = r.layer;
  r.spans.push_back(span_);
}

Mark::Mark(Relaxed<int> Recorder::*field, int value) : field_(field), before_(recorder().*field) {
  recorder().*field = value;
}

Mark::~Mark() { recorder().*field_ = before_; }

}  // namespace reelmesh::trace
