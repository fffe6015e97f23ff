#pragma once
// A call that is made again in every step of a clip.
#include <functional>
#include <memory>
#include <vector>

#include "comm/group.hpp"
#include "tensor/cuda/graph.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh {

/// Calls a function of tensors that stay where they are, while their values change. On a GPU the
/// first call goes as it comes, so that libraries choose their algorithms and the results find
/// their places; the second is recorded as a CUDA graph, and that is replayed from then on. Where
/// it cannot be recorded, a warning says why, and all calls go as they come. The bits are the same.
class RepeatedCall {
 public:
  using Call = std::function<std::vector<Tensor>()>;

  /// group: of those who make the call together. It makes the same results in the same order each
  /// time. It is not recorded where messages go through the host, or where the trace has spans
  /// within the call.
  RepeatedCall(Device device, const comm::Group& group, Call call);
  RepeatedCall(const RepeatedCall&) = delete;
  RepeatedCall& operator=(const RepeatedCall&) = delete;

  /// The results of this call; the next one overwrites them, where it is replayed.
  const std::vector<Tensor>& operator()();

 private:
  void record();

  Device device_;
  bool record_;
  Call call_;
  std::vector<Tensor> results_;               ///< none before the first call
  std::shared_ptr<const cuda::Graph> graph_;  ///< null until it is recorded
};

}  // namespace reelmesh
