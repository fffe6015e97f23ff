#pragma once
// How far a long stage has come, with its rate and the time that remains.
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

namespace reelmesh {

/// On a terminal one line that is rewritten; in a batch log one full line every `interval` seconds.
/// Each line is flushed. Made by all ranks, shown by the one that `speaks`.
class Progress {
 public:
  struct Output {
    std::ostream* stream = nullptr;   ///< nullptr: says nothing
    bool terminal = false;            ///< rewrite one line
    std::function<double()> seconds;  ///< a steady clock
    double interval = 10;             ///< seconds between two lines of a log
  };
  /// Standard error with the steady clock. isatty(2) decides, as Open MPI makes isatty(1) true
  /// even where standard output is a file.
  static Output standard_error(bool speaks);

  /// `unit` in the singular: "step". `total` units are expected, at least 1.
  Progress(std::string task, std::int64_t total, std::string unit, Output output);
  void advance(std::int64_t units = 1);
  /// Between the two the clock stands still: rates and times are those of the task alone.
  void pause();
  void resume();
  /// The closing line with the total time. Called at most once; a Progress that is destroyed
  /// without it (an exception) only leaves its line.
  void finish();

 private:
  std::string line(double now) const;
  std::string rate(double elapsed) const;
  void show(const std::string& text, bool last);

  std::string task_;
  std::int64_t total_;
  std::string unit_;
  Output output_;
  std::int64_t done_ = 0;
  double start_ = 0;              ///< later by the time of all pauses
  double shown_ = 0;              ///< when the last line was shown
  std::optional<double> paused_;  ///< since when
};

}  // namespace reelmesh
