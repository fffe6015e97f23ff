#include "models/opensora/memory.hpp"

#include <algorithm>

namespace reelmesh {

// The units are the bytes of this rank's residual stream [token, branch, channel], with frames cut
// and with positions cut.
std::int64_t stdit_working_bytes(const STDiTConfig& c, const STDiTSizes& s,
                                 const Precision& precision) {
  const std::int64_t size = precision.size(), pairs = s.branches * c.heads;
  const std::int64_t head = c.head_channels();
  const std::int64_t frames_unit = numel(s.frames) * s.branches * c.hidden * size;
  const std::int64_t positions_unit = numel(s.positions) * s.branches * c.hidden * size;
  const std::int64_t converted = precision.converts() ? size_of(precision.products) / size : 0;
  const bool v3 = c.kind == STDiTConfig::Kind::v3;

  // Kept during the whole step: keys and values of the text, latents and predictions, patches
  // before they are repeated for the branches, and the residual stream.
  const std::int64_t blocks = c.layers * (v3 ? 2 : 1);
  const std::int64_t text = blocks * s.text_tokens * s.branches * 2 * c.hidden * size;
  const std::int64_t latents = numel(s.frames) * c.patch.rows * c.patch.columns *
                               (6 * c.in_channels + s.branches * c.out_channels()) *
                               size_of(DType::float32);
  const std::int64_t held = text + latents + frames_unit / s.branches + frames_unit;

  // The modulated stream, queries, keys and values; if ranks divide heads, also send buffers and
  // received heads. Then attention within frames, or its result and that of the output layer.
  const std::int64_t shared =
      s.frames[0] * s.positions_of_frame * s.branches * s.shared_heads * head * size;
  const std::int64_t heads_pairs = s.shared_heads > 0 ? s.branches * s.shared_heads : pairs;
  const std::int64_t spatial = (s.shared_heads > 0 ? 7 : 4) * frames_unit + 5 * shared +
                               std::max(attention_bytes({s.positions_of_frame, s.positions_of_frame,
                                                         s.frames[0] * heads_pairs, head, true},
                                                        precision),
                                        2 * frames_unit);

  const std::int64_t moved = s.single_rank ? 0 : positions_unit;
  const std::int64_t within = held + frames_unit;
  const std::int64_t exchange = within + frames_unit + moved + positions_unit;
  // v1's first block adds the temporal position table to a copy of the stream; v3 has a modulated
  // copy. Each position is a sequence.
  const std::int64_t temporal =
      within + moved + (4 + converted) * positions_unit +
      std::max(attention_bytes({s.positions[0], s.positions[0], s.positions[1] * pairs, head, true},
                               precision),
               2 * positions_unit);
  const std::int64_t feed_forward = within + moved + (8 + 4 * converted) * positions_unit;
  const std::int64_t cross =
      within + moved + 3 * positions_unit +
      attention_bytes({numel(s.positions), s.text_tokens, pairs, head, true}, precision);
  return std::max({held + spatial, exchange, temporal, feed_forward, cross});
}

}  // namespace reelmesh
