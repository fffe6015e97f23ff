#pragma once
// A CUDA graph: work that is captured once and replayed many times, each time with one launch, such
// as a denoising step. Uses no CUDA types.
#include <functional>
#include <memory>

#include "tensor/device.hpp"

namespace reelmesh::cuda {

class Graph {
 public:
  /// Captures what `work` enqueues on the device's stream, and on streams that it joins to it;
  /// nothing runs yet. `work` must free all tensors that it allocates, must not free earlier ones,
  /// and must not wait for the device. Tensors that it uses must stay at their addresses while the
  /// graph is in use. Throws what `work` throws, and Error(internal) if it breaks these rules.
  Graph(Device device, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Enqueues the captured work.
  void replay() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reelmesh::cuda
