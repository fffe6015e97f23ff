#pragma once
// Moving a sharded array from one layout to another by intersecting boxes.
#include <optional>
#include <span>
#include <vector>

#include "layout/message_key.hpp"
#include "layout/sharded.hpp"
#include "tensor/strided_copy.hpp"

namespace reelmesh {

/// One array of an exchange: from a partition or a replicated layout to any layout of the same
/// global shape. Each layout is over consecutive ranks of the exchange's group: `from` starts at
/// rank from_first, `to` at rank to_first.
struct Move {
  Layout from;
  Layout to;
  int from_first = 0, to_first = 0;

  /// The box that a rank of the group holds before or after; empty if it is not in that layout.
  Box source_box(int rank) const { return part(from, rank - from_first); }
  Box target_box(int rank) const { return part(to, rank - to_first); }

 private:
  static Box part(const Layout& layout, int rank) {
    const Shape none(layout.global().size(), 0);
    return rank >= 0 && rank < layout.ranks() ? layout.box(rank) : Box{none, none};
  }
};

/// Moves several arrays together, with one message per pair of ranks. Made once for a geometry and
/// used many times; the constructor does not communicate.
class Exchange {
 public:
  Exchange(const comm::Group& group, const std::vector<Move>& moves);

  /// sources[i] has the elements of moves[i].source_box(rank) and targets[i], already allocated,
  /// those of moves[i].target_box(rank); all have the same dtype. Sources and targets do not
  /// overlap. All tensors of all ranks are on the host, or each rank's on its device, even those
  /// without elements. Collective only over ranks that send something to each other.
  void run(const std::vector<Tensor>& sources, std::span<Tensor> targets) const;

  /// An exchange that has begun. The Exchange must outlive it.
  class Pending {
   public:
    /// Returns when the targets are complete. Call it once.
    void finish();

   private:
    friend class Exchange;
    const Exchange* exchange_ = nullptr;
    void check_keys() const;
    std::vector<Tensor> targets_, received_;
    std::optional<MessageKey> key_;
    comm::PendingMessages messages_;
  };
  /// The first half of run(); Pending::finish() completes it. When begin() returns, sources may
  /// change, and the targets have the elements that stay on this rank; finish() brings the rest.
  /// The result shares the targets' memory, which the caller must not access until finish(). key:
  /// on the host; messages with keys of different kinds are independent of each other, and finish()
  /// throws Error(internal) if another rank has sent messages with another key.
  Pending begin(const std::vector<Tensor>& sources, std::span<Tensor> targets,
                const std::optional<MessageKey>& key = {}) const;

  /// Elements that this rank sends to others.
  std::int64_t sent_elements() const;

 private:
  struct Piece {
    std::size_t move;
    Box box;  ///< in global coordinates
  };
  struct Peer {
    int rank;
    std::vector<Piece> pieces;
    std::int64_t elements;
  };
  struct Own {
    Box source_box, target_box;
  };
  comm::Group group_;
  std::vector<Own> own_;  ///< this rank's boxes of each move
  std::vector<Peer> sends_, receives_;
  std::vector<Piece> local_;
};

/// x in another layout over its group. If the layouts are equal, returns x; elements that stay on
/// their rank are copied without messages.
Sharded relayout(const Sharded& x, const Layout& to);

/// Copies `box` from `source`, which covers the box `from`, to `target`, which covers `to` (all in
/// global coordinates, row-major). Both are on the host or on the same device.
void copy_box(const Box& box, const Tensor& source, const Box& from, Tensor& target, const Box& to);

/// The same copy as strides and offsets. The box is not empty; at most StridedCopy::max_axes axes.
gpu::StridedCopy strided_copy(const Box& box, const Box& from, const Box& to);

}  // namespace reelmesh
