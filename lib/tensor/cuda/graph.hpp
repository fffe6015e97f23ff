#pragma once
// Work of a device that is asked for once and done many times, as a CUDA graph: the host says one
// word for a whole denoising step. Names no type of CUDA.
#include <functional>
#include <memory>

#include "tensor/device.hpp"

namespace reelmesh::cuda {

class Graph {
 public:
  /// Records what `work` asks of the device's stream, and of streams that it joins to it; nothing
  /// of it is done yet. Tensors that `work` makes it also lets go, and those that were there before
  /// it does not: they stay where they are for as long as the graph is replayed. Nothing in `work`
  /// waits for the device. Throws what `work` throws, Error(internal) where it did any of this.
  Graph(Device device, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Asks for all of it again.
  void replay() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reelmesh::cuda
