#pragma once
// A call that is repeated in every denoising step of a clip.
#include <functional>
#include <memory>
#include <vector>

#include "tensor/cuda/graph.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh {

/// Calls a function whose input tensors keep their addresses while their values change. On a GPU
/// the first call runs eagerly, so that libraries choose their algorithms and the results are
/// allocated; the second is captured as a CUDA graph, which is replayed from then on. If the
/// capture fails, a warning says why, and all calls run eagerly, with bitwise equal results.
class RepeatedCall {
 public:
  using Call = std::function<std::vector<Tensor>()>;

  /// `call` returns the same number of tensors with the same shapes in the same order each time.
  /// capturable: whether the host takes no part in it, not even in its messages. It is not captured
  /// either if the trace level records spans within the call.
  RepeatedCall(Device device, bool capturable, Call call);
  RepeatedCall(const RepeatedCall&) = delete;
  RepeatedCall& operator=(const RepeatedCall&) = delete;

  /// The results of this call. The next call overwrites them if it is a replay.
  const std::vector<Tensor>& operator()();

 private:
  void record();

  Device device_;
  bool record_;
  Call call_;
  std::vector<Tensor> results_;               ///< none before the first call
  std::shared_ptr<const cuda::Graph> graph_;  ///< null until captured
};

}  // namespace reelmesh
