#include "base/device_spans.hpp"

#include <utility>

namespace reelmesh::trace {

void DeviceSpans::throw_kept_error() {
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

PendingSpan* DeviceSpans::begin() {
  throw_kept_error();
  if (!compared_) settle();
  PendingSpan& span = pending_.emplace_back();
  span.self = std::prev(pending_.end());
  try {
    stamp(span, false);
  } catch (...) {
    pending_.pop_back();
    throw;
  }
  return &span;
}

void DeviceSpans::end(PendingSpan& pending, const Span& values) noexcept {
  const std::int64_t start = pending.span.start_ns;  // known if its timestamp was read already
  pending.span = values;
  pending.span.start_ns = start;
  try {
    stamp(pending, true);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void DeviceSpans::stamp(PendingSpan& span, bool is_end) {
  if (stamps_.size() >= max_pending) read(max_pending / 2);
  clock_->stamp();
  stamps_.push_back({&span, is_end});
}

void DeviceSpans::read(std::size_t count) {
  for (const std::int64_t time : clock_->read(count)) {
    const auto [pending, is_end] = stamps_.front();
    stamps_.pop_front();
    if (!is_end) {
      pending->span.start_ns = time;
      continue;
    }
    pending->span.duration_ns = time - pending->span.start_ns;
    recorder().spans.push_back(pending->span);
    pending_.erase(pending->self);
  }
}

std::int64_t DeviceSpans::settle() {
  throw_kept_error();
  clock_->wait();
  if (recorder().level <= Level::stages) return now_ns();
  read(stamps_.size());
  compared_ = true;
  return clock_->compare();
}

std::int64_t DeviceSpans::settle_keeping_errors() noexcept {
  try {
    return settle();
  } catch (...) {
    error_ = std::current_exception();
    return now_ns();
  }
}

}  // namespace reelmesh::trace
