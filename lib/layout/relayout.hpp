#pragma once
// Moving a sharded array from one layout to another by intersecting boxes.
#include <vector>

#include "layout/sharded.hpp"
#include "tensor/cuda/strided_copy.hpp"

namespace reelmesh {

/// One array of an exchange: from a partition or a replicated layout to any layout, over the same
/// group and of the same global shape.
struct Move {
  Layout from;
  Layout to;
};

/// The messages of one rank for some moves that travel together. Made once for a geometry and used
/// many times; making it does not communicate.
class Exchange {
 public:
  Exchange(const comm::Group& group, std::vector<Move> moves);

  /// sources[i] has the extents of moves[i].from.box(rank) and targets[i], already allocated, those
  /// of moves[i].to.box(rank); same dtype in all. Source and target do not overlap. Collective only
  /// over the ranks that have something to send to or to receive from each other. All are on the
  /// host, or on every rank on its device, those without elements too.
  void run(const std::vector<Tensor>& sources, const std::vector<Tensor>& targets) const;

  /// Messages that are on their way. The exchange that began it lives longer.
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
  /// The same as run() in two halves. When begin() returns, sources may change, and what a rank
  /// gives itself has arrived; the rest of the targets has after finish().
  Running begin(const std::vector<Tensor>& sources, const std::vector<Tensor>& targets) const;

  /// Returns when the ranks that this one exchanges something with have come here too: before run()
  /// where they may be far behind (comm::Group::meet).
  void meet() const;

  /// The adjoint of run(), for derivatives: adds every element of the targets to the element of a
  /// source that run() would take it from. float32, on the host; contributions are added in the
  /// order of ranks.
  void add_back(const std::vector<Tensor>& targets, const std::vector<Tensor>& sources) const;

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
  comm::Group group_;
  std::vector<Move> moves_;
  std::vector<Peer> sends_, receives_;
  std::vector<Piece> local_;
};

/// x in another layout over its group. Equal layouts cost nothing; a rank that already holds what
/// it needs sends itself nothing. meet: tensors on devices wait for ranks that may be far behind.
Sharded relayout(const Sharded& x, const Layout& to, bool meet = false);

/// Copies the part `box` of a block that covers `from` into a block that covers `to` (all in global
/// coordinates, row-major), where they are: on the host or on one device.
void copy_box(const Box& box, const Tensor& source, const Box& from, const Tensor& target,
              const Box& to);

/// The same as a kernel takes it. The box is not empty.
gpu::StridedCopy strided_copy(const Box& box, const Box& from, const Box& to);

}  // namespace reelmesh
