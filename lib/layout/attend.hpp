#pragma once
#include <optional>

#include "layout/relayout.hpp"

namespace reelmesh {

/// Self-attention over tokens that are spread over a group. The tokens stand in segments (text,
/// then video), each an array of tokens with a layout of its own; every token is a key exactly
/// once, in global order. Around the attention tokens are exchanged for heads (Ulysses; Jacobs et
/// al. 2023), heads as even as integers allow, so that each rank sees all tokens of its heads and
/// the bits do not depend on the layout.
class Attend {
 public:
  struct Geometry {
    std::int64_t batch = 1;
    std::int64_t heads = 1;
    std::int64_t channels = 1;  ///< of a head
  };

  /// segments[i]: a partition of the tokens of segment i (any number of axes) over the group.
  Attend(const comm::Group& group, const std::vector<Layout>& segments, const Geometry& geometry);

  /// qkv: this rank's tokens [token, batch, 3, head, channel], segment after segment, each
  /// row-major in its box. → [token, batch, head, channel], the same tokens. scale: of q·k before
  /// the softmax.
  Tensor operator()(const Tensor& qkv, float scale) const;

  /// Elements that this rank sends in one call.
  std::int64_t sent_elements() const;

 private:
  // An array [all tokens, …, head, …] cut by tokens on one side and by heads on the other.
  struct Side {
    std::vector<std::int64_t> mine;   ///< tokens of each segment in this rank's boxes
    std::vector<std::int64_t> total;  ///< tokens of each segment
    std::int64_t heads = 0;           ///< heads of this rank
  };
  Geometry geometry_;
  Side side_;
  std::optional<Exchange> to_heads_, to_tokens_;  ///< none where one rank holds everything
};

/// Values that every row of an image has, from all ranks, in the global order of the rows.
/// rows: layout of the one axis of rows, a partition; mine: `values` doubles for each local row. →
/// global rows × values doubles on every rank. Adding them up in this order gives the same bits for
/// every layout.
std::vector<double> gather_rows(const comm::Group& group, const Layout& rows,
                                const std::vector<double>& mine, std::int64_t values);

}  // namespace reelmesh
