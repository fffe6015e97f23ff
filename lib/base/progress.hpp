#pragma once
// Progress of a long stage: units done, their rate and the estimated time left.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

namespace reelmesh {

/// On a terminal one line that is rewritten; in a batch log one full line every `interval` seconds.
/// Each line is flushed. Constructed on all ranks, shown on the rank where it is enabled.
class Progress {
 public:
  struct Output {
    std::ostream* stream = nullptr;   ///< nullptr: prints nothing
    bool terminal = false;            ///< rewrite one line
    std::function<double()> seconds;  ///< a steady clock
    double interval = 10;             ///< seconds between two lines of a log
  };
  /// Standard error with the steady clock. A terminal if isatty(2): Open MPI makes isatty(1) true
  /// even if standard output is a file.
  static Output standard_error(bool enabled);

  /// `unit` in the singular: "step". `total` units are expected, at least 1.
  Progress(std::string task, std::int64_t total, std::string unit, Output output);
  void advance(std::int64_t units = 1);
  /// Is shown at the end of each following line.
  void note(std::string text) { note_ = std::move(text); }
  /// At least `units` more are to follow.
  void expect(std::int64_t units) { total_ = std::max(total_, done_ + units); }
  /// The clock is stopped between pause() and resume(), so rates and times exclude pauses.
  void pause();
  void resume();
  /// Prints the last line, with the total time. Call at most once. If it is not called (because of
  /// an exception), the last progress line remains.
  void finish();

 private:
  std::string line(double now) const;
  std::string rate(double elapsed) const;
  void show(const std::string& text, bool last);

  std::string task_;
  std::int64_t total_;
  std::string unit_, note_;
  Output output_;
  std::int64_t done_ = 0;
  double start_ = 0;              ///< shifted by the time of all pauses
  double shown_ = 0;              ///< when the last line was shown
  std::optional<double> paused_;  ///< since when
};

}  // namespace reelmesh
