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

// Seconds between two lines of a log, until the first one, and between two lines of a terminal.
constexpr double interval = 10, first_line = 2, terminal_interval = 0.1;

}  // namespace

ProgressLine::Output ProgressLine::standard_error(bool enabled) {
  return {.stream = enabled ? &std::cerr : nullptr,
          .terminal = isatty(STDERR_FILENO) != 0,
          .seconds = [] { return 1e-9 * static_cast<double>(trace::now_ns()); }};
}

bool ProgressLine::is_due() {
  if (!enabled()) return false;
  if (!due_) due_ = now() + (output_.terminal ? terminal_interval : first_line);
  return now() >= *due_;
}

void ProgressLine::show(const std::string& text) {
  if (!is_due()) return;
  due_ = now() + (output_.terminal ? terminal_interval : interval);
  if (output_.terminal) {
    // The cursor stays at the start of the line, where the next line or message replaces it.
    *output_.stream << "\x1b[K" << text << '\r' << std::flush;
  } else {
    *output_.stream << text << '\n' << std::flush;
  }
}

void ProgressLine::show_last(const std::string& text) {
  clear();
  if (enabled()) *output_.stream << text << '\n' << std::flush;
}

void ProgressLine::clear() {
  if (enabled() && output_.terminal) *output_.stream << "\x1b[K" << std::flush;
}

Progress::Progress(std::string task, std::int64_t total, std::string unit,
                   ProgressLine::Output output)
    : task_(std::move(task)),
      total_(std::max<std::int64_t>(total, 1)),
      unit_(std::move(unit)),
      line_(std::move(output)) {
  if (!line_.enabled()) return;
  start_ = line_.now();
  (void)line_.is_due();  // the first line is 2 s after this
}

void Progress::advance(std::int64_t units) {
  done_ += units;
  if (line_.is_due()) line_.show(line(line_.now()));
}

void Progress::pause() {
  if (line_.enabled() && !paused_) paused_ = line_.now();
}

void Progress::resume() {
  if (paused_) start_ += line_.now() - *paused_;
  paused_.reset();
}

void Progress::finish() {
  if (!line_.enabled()) return;
  resume();
  const double elapsed = line_.now() - start_;
  line_.show_last(fmt::format("{}: {} {}{} in {}, {}", task_, done_, unit_, done_ == 1 ? "" : "s",
                              format_seconds(elapsed), rate_text(done_, elapsed, unit_)));
}

std::string Progress::line(double now) const {
  const double elapsed = now - start_;
  const auto left = static_cast<double>(std::max<std::int64_t>(total_ - done_, 0));
  const std::string remaining =
      done_ > 0 ? ", " + format_seconds(elapsed / static_cast<double>(done_) * left) + " left" : "";
  return fmt::format("{}: {} of {} {}s ({:.0f} %), {}{}{}{}", task_, done_, total_, unit_,
                     100.0 * static_cast<double>(done_) / static_cast<double>(total_),
                     rate_text(done_, elapsed, unit_), remaining, note_.empty() ? "" : ", ", note_);
}

std::string rate_text(std::int64_t done, double seconds, const std::string& unit) {
  if (done <= 0 || seconds <= 0) return fmt::format("no {} yet", unit);
  const double per_second = static_cast<double>(done) / seconds;
  return per_second >= 1 ? fmt::format("{:.2f} {}s/s", per_second, unit)
                         : fmt::format("{:.2f} s/{}", 1 / per_second, unit);
}

}  // namespace reelmesh
