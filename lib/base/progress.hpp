#pragma once
// Lines on standard error that say how far a job is.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

namespace reelmesh {

/// On a terminal one line that is rewritten; in a log, as under mpirun and srun, a line 2 s after
/// the first call, and then one at most every 10 s. Each line is flushed.
class ProgressLine {
 public:
  struct Output {
    std::ostream* stream = nullptr;   ///< nullptr: prints nothing
    bool terminal = false;            ///< rewrite one line
    std::function<double()> seconds;  ///< a steady clock
  };
  /// Standard error with the steady clock. A terminal if isatty(2): Open MPI makes isatty(1) true
  /// even if standard output is a file.
  static Output standard_error(bool enabled);

  explicit ProgressLine(Output output) : output_(std::move(output)) {}
  bool enabled() const { return output_.stream != nullptr; }
  double now() const { return output_.seconds(); }
  /// Whether the time has come for another line.
  bool is_due();
  /// Shows a line if it is due. Another one replaces it on a terminal.
  void show(const std::string& text);
  /// Shows a line that stays.
  void show_last(const std::string& text);
  /// Removes the line from a terminal.
  void clear();

 private:
  Output output_;
  std::optional<double> due_;  ///< when the next line is; none before the first call
};

/// Progress of a long stage: units done, their rate and the estimated time left. Constructed on all
/// ranks, shown on the rank where it is enabled.
class Progress {
 public:
  /// `unit` in the singular: "step". `total` units are expected, at least 1.
  Progress(std::string task, std::int64_t total, std::string unit, ProgressLine::Output output);
  void advance(std::int64_t units = 1);
  /// Is shown at the end of each following line.
  void note(std::string text) { note_ = std::move(text); }
  /// The clock is stopped between pause() and resume(), so rates and times exclude pauses.
  void pause();
  void resume();
  /// Prints the last line, with the total time. Call at most once. If it is not called (because of
  /// an exception), the last progress line remains.
  void finish();

 private:
  std::string line(double now) const;

  std::string task_;
  std::int64_t total_;
  std::string unit_, note_;
  ProgressLine line_;
  std::int64_t done_ = 0;
  double start_ = 0;              ///< shifted by the time of all pauses
  std::optional<double> paused_;  ///< since when
};

/// "2.50 steps/s", "4.00 s/step", "no step yet"; unit in the singular.
std::string rate_text(std::int64_t done, double seconds, const std::string& unit);

}  // namespace reelmesh
