#include "base/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "base/trace.hpp"
#include "base/units.hpp"

namespace reelmesh {
namespace {

constexpr double terminal_interval = 0.1;  // seconds between two rewrites of the line

}  // namespace

Progress::Output Progress::standard_error(bool enabled) {
  return {.stream = enabled ? &std::cerr : nullptr,
          .terminal = isatty(STDERR_FILENO) != 0,
          .seconds = [] { return 1e-9 * static_cast<double>(trace::now_ns()); }};
}

Progress::Progress(std::string task, std::int64_t total, std::string unit, Output output)
    : task_(std::move(task)),
      total_(std::max<std::int64_t>(total, 1)),
      unit_(std::move(unit)),
      output_(std::move(output)) {
  if (output_.stream == nullptr) return;
  start_ = shown_ = output_.seconds();
}

void Progress::advance(std::int64_t units) {
  done_ += units;
  if (output_.stream == nullptr) return;
  const double now = output_.seconds();
  if (now - shown_ < (output_.terminal ? terminal_interval : output_.interval)) return;
  shown_ = now;
  show(line(now), false);
}

void Progress::pause() {
  if (output_.stream != nullptr && !paused_) paused_ = output_.seconds();
}

void Progress::resume() {
  if (paused_) start_ += output_.seconds() - *paused_;
  paused_.reset();
}

void Progress::finish() {
  if (output_.stream == nullptr) return;
  resume();
  const double elapsed = output_.seconds() - start_;
  show(fmt::format("{}: {} {}{} in {}, {}", task_, done_, unit_, done_ == 1 ? "" : "s",
                   format_seconds(elapsed), rate(elapsed)),
       true);
}

std::string Progress::line(double now) const {
  const double elapsed = now - start_;
  const auto left = static_cast<double>(std::max<std::int64_t>(total_ - done_, 0));
  const std::string remaining =
      done_ > 0 ? ", " + format_seconds(elapsed / static_cast<double>(done_) * left) + " left" : "";
  return fmt::format("{}: {} of {} {}s ({:.0f} %), {}{}{}{}", task_, done_, total_, unit_,
                     100.0 * static_cast<double>(done_) / static_cast<double>(total_),
                     rate(elapsed), remaining, note_.empty() ? "" : ", ", note_);
}

std::string Progress::rate(double elapsed) const {
  if (done_ <= 0 || elapsed <= 0) return fmt::format("no {} yet", unit_);
  const double per_second = static_cast<double>(done_) / elapsed;
  return per_second >= 1 ? fmt::format("{:.2f} {}s/s", per_second, unit_)
                         : fmt::format("{:.2f} s/{}", 1 / per_second, unit_);
}

void Progress::show(const std::string& text, bool last) {
  // The cursor stays at the start of the line, where the next line or message replaces it.
  if (output_.terminal) {
    *output_.stream << "\x1b[K" << text << (last ? "\n" : "\r") << std::flush;
  } else {
    *output_.stream << text << '\n' << std::flush;
  }
}

}  // namespace reelmesh
