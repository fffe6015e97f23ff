#pragma once
// How far the clips of a job are.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/activities.hpp"

namespace reelmesh::pipeline {

/// What a rank does with a clip: "encoding", "denoising", "decoding" or "writing"; otherwise empty.
std::string_view clip_work(const comm::Activity& rank);

/// For lines of the log. The time left follows from the times so far: of steps while any rank
/// denoises, and of decoding while ranks only decode and write.
class ClipsProgress {
 public:
  /// clips: of the job; steps: of all its clips that are to be made; decodes: to videos.
  ClipsProgress(std::int64_t clips, std::int64_t steps, bool decodes)
      : clips_(clips), steps_(steps), decodes_(decodes) {}

  /// "3 of 200 clips, 410 of 9850 steps (4 %), 1.68 steps/s, denoising, 1 h 33 min left". complete:
  /// clips; activities: of the ranks; seconds: of a steady clock. To be called from the start on,
  /// about every two seconds.
  std::string line(std::int64_t complete, std::span<const comm::Activity> activities,
                   double seconds);

 private:
  struct Seen {
    std::int64_t complete = 0, steps = 0;
  };
  std::string time_left(std::int64_t complete, std::int64_t steps) const;

  const std::int64_t clips_, steps_;
  const bool decodes_;
  std::optional<Seen> first_;  ///< by the first call of line()
  double last_ = 0;            ///< when line() was called last
  double denoising_seconds_ = 0, decoding_seconds_ = 0;
};

}  // namespace reelmesh::pipeline
