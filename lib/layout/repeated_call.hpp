#pragma once
// A call that is repeated in every denoising step of a clip.
#include <functional>
#include <memory>
#include <vector>

#include "comm/group.hpp"
#include "tensor/cuda/graph.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh {

/// Calls a function whose input tensors keep their addresses while their values change. On a GPU
/// the first call runs eagerly, so that libraries choose their algorithms and the results are
/// allocated; the second is captured as a CUDA graph, which is replayed from then on. If the
/// capture fails on any rank, that rank warns why, and all calls run eagerly on all ranks (NCCL
/// requires that both sides of a message are captured, or neither), with bitwise equal results.
class RepeatedCall {
 public:
  using Call = std::function<std::vector<Tensor>()>;

  /// `call` returns the same number of tensors with the same shapes in the same order each time.
  /// group: all ranks that exchange messages in it; each of them makes the same calls. capturable,
  /// the same on all of them: whether the host takes no part in it, not even in its messages. It is
  /// not captured either if the trace level records spans within the call.
  RepeatedCall(Device device, const comm::Group& group, bool capturable, Call call);
  RepeatedCall(const RepeatedCall&) = delete;
  RepeatedCall& operator=(const RepeatedCall&) = delete;

  /// The results of this call. The next call overwrites them if it is a replay. Collective over the
  /// group.
  const std::vector<Tensor>& operator()();

 private:
  void record();

  Device device_;
  comm::Group group_;
  bool record_;
  Call call_;
  std::vector<Tensor> results_;               ///< none before the first call
  std::shared_ptr<const cuda::Graph> graph_;  ///< null until captured
};

}  // namespace reelmesh
