#pragma once
// Moving an array from the ranks of one stage to those of the next.
#include <memory>

#include "layout/relayout.hpp"

namespace reelmesh {

/// An array on the host that is being sent from some ranks of a group to others, directly to the
/// ranks that need it. Ranks with empty boxes in both layouts neither send nor wait.
class HandOver {
 public:
  /// x: this rank's box move.source_box(rank), of `dtype`; default-constructed if that is empty.
  /// Two ranks that share several hand-overs of one kind begin them in one order.
  HandOver(const comm::Group& group, const MessageKey& key, const Tensor& x, const Move& move,
           DType dtype);
  /// → this rank's box move.target_box(rank). Call it once; a rank that only sends waits until its
  /// data has left. Error(internal) naming both ranks and keys if another rank has sent something
  /// else.
  Tensor finish();

 private:
  Tensor target_;
  std::unique_ptr<const Exchange> exchange_;
  Exchange::Pending pending_;
};

}  // namespace reelmesh
