#pragma once
// Moving a sharded array from one layout to another by intersecting boxes.
#include <span>
#include <vector>

#include "layout/sharded.hpp"
#include "tensor/cuda/strided_copy.hpp"

namespace reelmesh {

/// One array of an exchange: from a partition or a replicated layout to any layout of the same
/// global shape. Each layout is over consecutive ranks of the exchange's group: the first from
/// `from_first` on, the other from `to_first` on.
struct Move {
  Layout from;
  Layout to;
  int from_first = 0, to_first = 0;

  /// What a rank of the group gives or takes; an empty box where it has no part in the layout.
  Box given(int rank) const { return part(from, rank - from_first); }
  Box taken(int rank) const { return part(to, rank - to_first); }

 private:
  static Box part(const Layout& layout, int rank) {
    const Shape none(layout.global().size(), 0);
    return rank >= 0 && rank < layout.ranks() ? layout.box(rank) : Box{none, none};
  }
};

/// The messages of one rank for some moves that travel together. Made once for a geometry and used
/// many times; making it does not communicate.
class Exchange {
 public:
  Exchange(const comm::Group& group, const std::vector<Move>& moves);

  /// sources[i] has the elements of moves[i].given(rank) and targets[i], already allocated, those
  /// of moves[i].taken(rank); same dtype in all. Source and target do not overlap. Collective only
  /// over the ranks that have something to send to or to receive from each other. All are on the
  /// host, or on every rank on its device, those without elements too.
  void run(const std::vector<Tensor>& sources, std::span<Tensor> targets) const;

  /// A run that has begun. The exchange outlives it.
  class Running {
   public:
    /// Returns when the targets are complete. Once only.
    void finish();

   private:
    friend class Exchange;
    const Exchange* exchange_ = nullptr;
    std::vector<Tensor> targets_, received_;
    comm::Transfer transfer_;
  };
  /// The first half of run(), which Running::finish() completes. When begin() returns, sources may
  /// change, and the targets have what this rank gives itself; the rest arrives by finish(). Until
  /// then the result shares the targets' memory, and the caller does not use it.
  Running begin(const std::vector<Tensor>& sources, std::span<Tensor> targets) const;

  /// Returns when the ranks that this one exchanges something with have come here too: before run()
  /// where they may be far behind (comm::Group::meet).
  void meet() const;

  /// The adjoint of run(), for derivatives: adds every element of the targets to the element of
  /// `sources` that run() would copy it from. float32, on the host; contributions are added in the
  /// order of ranks.
  void add_back(const std::vector<Tensor>& targets, std::span<Tensor> sources) const;

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
    Box given, taken;
  };
  comm::Group group_;
  std::vector<Own> own_;  ///< this rank's boxes of each move
  std::vector<Peer> sends_, receives_;
  std::vector<Piece> local_;
};

/// x in another layout over its group. Equal layouts cost nothing; a rank that already holds what
/// it needs sends itself nothing.
Sharded relayout(const Sharded& x, const Layout& to);

/// Moves an array from some ranks of a group to others, each directly to the ranks that need it.
/// x: this rank's part, of move.given(rank); default-made where that is empty. → this rank's part
/// of move.taken(rank), of `dtype` on `device`, where x is too. Only ranks that have a part in one
/// of the two layouts take part; the others return at once. Two ranks that have several such calls
/// in common make them in the same order.
Tensor hand_over(const comm::Group& group, const Tensor& x, const Move& move, DType dtype,
                 Device device);

/// Copies the part `box` of a block that covers `from` into a block that covers `to` (all in global
/// coordinates, row-major), where they are: on the host or on one device.
void copy_box(const Box& box, const Tensor& source, const Box& from, Tensor& target, const Box& to);

/// The same as a kernel takes it. The box is not empty.
gpu::StridedCopy strided_copy(const Box& box, const Box& from, const Box& to);

}  // namespace reelmesh
