#pragma once
// How clips of one size are distributed over a group of ranks for an Open-Sora transformer.
#include <optional>

#include "layout/attend.hpp"
#include "layout/space_time.hpp"
#include "models/common/denoiser.hpp"
#include "models/opensora/config.hpp"
#include "models/opensora/positions.hpp"

namespace reelmesh {

class STDiT;

/// The properties of a clip that the transformer uses.
struct STDiTClip {
  Shape latents;                       ///< [frame, row, column]; need not be multiples of a patch
  std::int64_t height = 0, width = 0;  ///< of the video in pixels; only v3 uses them
  double fps = 8;                      ///< frames per second; only v3 uses it

  /// Tokens [frame, row, column]; patches at the edges are padded.
  Shape tokens(const ops::Patch& patch) const;
};

/// The clips of a task. A single image has fps 120, as in the training of Open-Sora 1.2.
STDiTClip stdit_clip(const DenoiseTask& task);

/// The layouts, tables and exchanges of a clip or of a batch of clips of one size. Made once and
/// used in every call of the transformer. All clips have the same layouts.
class STDiTPlacement {
 public:
  /// layouts: of clip.tokens() over the group. branches: of each clip. Tables are stored on the
  /// model's device. Collective over the group. Throws Error(unavailable) on all ranks if attention
  /// does not support the shape of one of them (ops::prepare_attend).
  STDiTPlacement(const STDiT& model, const comm::Group& group, const SpaceTime& layouts,
                 const STDiTClip& clip, std::int64_t clips = 1,
                 std::int64_t branches = STDiTConfig::branches);

  const comm::Group& group() const { return group_; }
  const STDiTClip& clip() const { return clip_; }
  std::int64_t clips() const { return clips_; }
  /// The tokens of a clip while frames are cut, and while positions are.
  const TokenColumns& frame_columns() const { return frame_columns_; }
  const TokenColumns& position_columns() const { return position_columns_; }
  /// Elements that this rank sends in a pair of spatial and temporal attention, for all clips.
  std::int64_t sent_elements() const;

 private:
  friend class STDiT;
  /// Of one clip on all ranks. Algorithms of matrix products are chosen for this number of rows,
  /// not for those of this rank or of the batch.
  std::int64_t all_tokens() const { return numel(layouts_.tokens.global()); }
  void set_exchanges(const STDiTConfig& config);
  // Redistribute tokens [clip · frame · position, branch, channel]: from frames cut to positions
  // cut, and back. Gradients: of a batch of one clip, as of all attention here.
  Tensor to_positions(const Tensor& x) const;
  Tensor to_frames(const Tensor& x) const;
  // Redistributes queries (1 part) and keys and values (2 parts) of own tokens, [clip · token,
  // branch, part, head, channel], to whole frames [clip · frame, position, branch, part, head,
  // channel]: of all heads, or of this rank's heads if ranks share frames. own_tokens() is the
  // inverse, for results (1 part).
  std::pair<Tensor, Tensor> whole_frames(const Tensor& q, const Tensor& kv) const;
  Tensor own_tokens(const Tensor& x) const;
  // Attention of queries to keys and values as above → as q: each frame is a sequence; each
  // position is one, x [clip · frame, position · branch, part, head, channel]; to texts, clip by
  // clip [token, branch, 2, head, channel].
  Tensor within_frames(const Tensor& q, const Tensor& kv, float scale,
                       const Numerics& numerics) const;
  Tensor along_time(const Tensor& q, const Tensor& kv, float scale, const Numerics& numerics) const;
  Tensor to_texts(const Tensor& q, std::span<const Tensor> texts, float scale,
                  const Numerics& numerics) const;
  std::int64_t frames() const {
    return frame_cut_extents_[0];
  }  ///< of this rank while frames are cut
  std::int64_t positions() const { return frame_cut_extents_[1]; }

  comm::Group group_;
  SpaceTime layouts_;
  STDiTClip clip_;
  std::int64_t clips_, branches_;
  ops::Patch patch_;
  TokenColumns frame_columns_, position_columns_;
  /// Extents [frame, position] of this rank's box of a clip, in each of the two cuts.
  Shape frame_cut_extents_, position_cut_extents_;
  Shape in_heads_;                 ///< [frame, position, head] if ranks share frames
  std::int64_t heads_;             ///< on all ranks together
  Tensor positions_;               ///< [position, channels] of this rank while frames are cut
  Tensor times_;                   ///< [frame, channels] of all frames; v1
  Tensor fps_;                     ///< number_embedding of the clip's frames per second; v3
  TemporalRotaryTables rotation_;  ///< of all frames; v3
  // Each exchange moves all clips: one message to each rank.
  std::optional<Exchange> to_positions_, to_frames_;  ///< none for a single rank
  std::optional<Exchange> to_heads_, to_tokens_;      ///< none if ranks have whole frames
  std::optional<Exchange> part_to_heads_;             ///< of one part
};

/// Splits the rows of x into equal parts, such as one per clip; they share its memory. One part is
/// x itself.
std::vector<Tensor> split_rows(const Tensor& x, std::int64_t parts);

}  // namespace reelmesh
