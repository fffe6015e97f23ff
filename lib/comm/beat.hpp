#pragma once
// A heartbeat: the message of fixed size that ranks exchange with rank 0.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/memory_in_use.hpp"
#include "comm/task_counter.hpp"

namespace reelmesh::comm {

/// A text inside a message: its first N − 1 bytes.
template <std::size_t N>
class ShortText {
 public:
  ShortText() = default;
  /// text: nullptr is an empty one.
  explicit ShortText(const char* text) {
    if (text != nullptr) std::copy_n(text, strnlen(text, N - 1), bytes_.data());
  }
  bool empty() const { return bytes_[0] == '\0'; }
  std::string string() const { return {bytes_.data(), strnlen(bytes_.data(), N)}; }

 private:
  std::array<char, N> bytes_{};
};

/// What a rank does, or the order of rank 0 to end.
struct Beat {
  enum Kind : std::int32_t { alive, leaving, end };
  std::uint64_t token = 0;  ///< of this job
  std::int32_t kind = alive, rank = 0, process = 0;
  std::int32_t stop_cause = 0, end_status = 0, unsaved = 0;
  std::int32_t clip = -1, step = -1, layer = -1;  ///< −1: none
  std::int32_t new_plans = 0;                     ///< stop::new_plans_requested()
  std::int64_t waits = 0;                         ///< trace::Recorder::waits
  std::int64_t clip_steps = 0;                    ///< trace::Recorder::clip_steps
  MemoryInUse memory;
  TaskMessage task;
  ShortText<24> stage, waiting;  ///< waiting: the call in which it waits for others, or empty
  ShortText<64> host;

  /// Whether the rank waits for others, or writes a file: that may hang, too.
  bool may_wait() const;
};

/// What this process does now, without token, rank and task.
Beat own_beat();

/// "denoise_step, clip 2, step 14, layer 7, waiting in MPI_Waitall"
std::string beat_text(const Beat& beat);

}  // namespace reelmesh::comm
