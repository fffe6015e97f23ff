#pragma once
// How clips of one size lie over a group of ranks while an Open-Sora transformer works on them.
#include <optional>

#include "layout/relayout.hpp"
#include "models/common/denoiser.hpp"
#include "models/opensora/positions.hpp"

namespace reelmesh {

class STDiT;

/// What a clip looks like to the transformer.
struct STDiTClip {
  Shape latents;                       ///< [frame, row, column], any numbers
  std::int64_t height = 0, width = 0;  ///< of the picture in pixels; v3 looks at them
  double fps = 8;                      ///< v3 looks at it

  /// [frame, row, column]; patches at the edges are filled up.
  Shape tokens(const ops::Patch& patch) const;
};

/// The clips of a task. Release 1.2 was told in its training that images have 120 frames a second.
STDiTClip stdit_clip(const DenoiseTask& task);

/// Set up once for a clip, or for several of the same size that go through the transformer
/// together; used in every call. All have the same layouts.
class STDiTPlacement {
 public:
  /// layouts: of clip.tokens() over the group. On the device where the model's weights are.
  STDiTPlacement(const STDiT& model, const comm::Group& group, const SpaceTime& layouts,
                 const STDiTClip& clip, std::int64_t clips = 1);

  const comm::Group& group() const { return group_; }
  const STDiTClip& clip() const { return clip_; }
  std::int64_t clips() const { return clips_; }
  /// Elements of all clips that this rank sends in a pair of spatial and temporal attention.
  std::int64_t sent_elements() const;

 private:
  friend class STDiT;
  // Tokens [clip · frame · position, branch, channel] of this rank from one cut to the other.
  Tensor to_positions(const Tensor& x) const;
  Tensor to_frames(const Tensor& x) const;
  // Queries and keys of tokens, [clip · token, branch, part, head, channel], as whole frames [clip
  // · frame, position, branch, part, head, channel]: of all heads, or of this rank's where a
  // frame's ranks share them; and the way back for results, which have one part.
  std::pair<Tensor, Tensor> whole_frames(const Tensor& q, const Tensor& kv) const;
  Tensor own_tokens(const Tensor& x) const;
  std::int64_t frames() const { return in_frames_[0]; }  ///< of this rank where frames are cut
  std::int64_t positions() const { return in_frames_[1]; }

  comm::Group group_;
  SpaceTime layouts_;
  STDiTClip clip_;
  std::int64_t clips_;
  ops::Patch patch_;
  /// Extents [frame, position] of this rank in both cuts, of a clip.
  Shape in_frames_, in_positions_;
  Shape in_heads_;         ///< [frame, position, head] where the ranks of a frame share heads
  std::int64_t heads_;     ///< of all ranks
  Tensor positions_;       ///< [position, channels] of this rank where frames are cut
  Tensor times_;           ///< [frame, channels] of all frames; v1
  Tensor fps_;             ///< number_embedding of the clip's frames a second; v3
  TimeRotation rotation_;  ///< of all frames; v3
  // Of all clips together: one message to each rank.
  std::optional<Exchange> to_positions_, to_frames_;  ///< none where one rank holds everything
  std::optional<Exchange> to_heads_, to_tokens_;      ///< none where frames are whole
};

/// The rows of x in so many equal parts, such as those of each clip; they share its memory.
std::vector<Tensor> row_parts(const Tensor& x, std::int64_t parts);

}  // namespace reelmesh
