#pragma once
// The graph interface of cuDNN: operations become a graph, for which it proposes engines with their
// settings, one of which becomes a plan.
#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/handle.hpp"
#include "tensor/cuda/libraries.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu::dnn {

/// What is used of cuDNN.
struct Functions {
#define REELMESH_DNN(f) REELMESH_LIBRARY_FUNCTION(cuda::cudnn(), f)
  REELMESH_DNN(cudnnBackendCreateDescriptor);
  REELMESH_DNN(cudnnBackendDestroyDescriptor);
  REELMESH_DNN(cudnnBackendExecute);
  REELMESH_DNN(cudnnBackendFinalize);
  REELMESH_DNN(cudnnBackendGetAttribute);
  REELMESH_DNN(cudnnBackendSetAttribute);
  REELMESH_DNN(cudnnCreate);
  REELMESH_DNN(cudnnGetErrorString);
  REELMESH_DNN(cudnnGetLastErrorString);
  REELMESH_DNN(cudnnGetVersion);
  REELMESH_DNN(cudnnSetStream);
#undef REELMESH_DNN
};
/// Loads the library when first called: Error(unavailable) where that cannot be.
const Functions& functions();

/// Throws where a call failed: Error(unavailable) when the library, its needs or memory are
/// lacking, Error(internal) otherwise.
void check(cudnnStatus_t status, const char* call);

struct DestroyDescriptor {
  void operator()(cudnnBackendDescriptor_t made) const {
    functions().cudnnBackendDestroyDescriptor(made);
  }
};
using Descriptor = Handle<cudnnBackendDescriptor_t, DestroyDescriptor{}>;

/// A new descriptor, to be set and finalized.
Descriptor make(cudnnBackendDescriptorType_t type);
cudnnStatus_t finalize(const Descriptor& descriptor);

template <class T>
void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, const std::vector<T>& values) {
  check(functions().cudnnBackendSetAttribute(
            descriptor.get(), name, type, static_cast<std::int64_t>(values.size()), values.data()),
        "cudnnBackendSetAttribute");
}
void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
         const std::vector<std::int64_t>& values);
void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name, const Descriptor& value);

/// One value of an attribute.
template <class T>
T get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
      cudnnBackendAttributeType_t type) {
  T value{};
  std::int64_t count = 0;
  check(functions().cudnnBackendGetAttribute(descriptor, name, type, 1, &count, &value),
        "cudnnBackendGetAttribute");
  return value;
}

/// A tensor as an operation sees it, at addresses that are multiples of 16 bytes. uid: of its
/// address when a plan is run. by_value: a number of the host.
struct TensorView {
  DType dtype;
  std::int64_t uid;
  Shape extents;
  std::vector<std::int64_t> strides;  ///< in elements
  bool by_value = false;
};
Descriptor tensor(const TensorView& view);

/// The library of this process on the device, on its stream; lives as long as the process.
cudnnHandle_t library(Device device);

/// A graph of one operation.
Descriptor graph_of(cudnnHandle_t library, const Descriptor& operation);
/// What cuDNN proposes for a graph, best first; nothing where it does not know.
std::vector<Descriptor> configs_of(const Descriptor& graph, cudnnBackendHeurMode_t mode);
/// The engine of a proposal, as long as the proposal lives.
class Engine {
 public:
  explicit Engine(const Descriptor& config);
  std::vector<cudnnBackendNumericalNote_t> notes() const;
  std::int64_t index() const;

 private:
  Descriptor owner_;
  cudnnBackendDescriptor_t engine_;
};

struct Plan {
  Descriptor execution;
  std::int64_t workspace = 0;  ///< bytes of device memory that it asks for
};
/// Nothing where it cannot run.
std::optional<Plan> plan_of(cudnnHandle_t library, const Descriptor& config);

struct Argument {
  std::int64_t uid;
  const void* address;  ///< of memory that is written where it is a result
};
/// On the device's stream.
void run(Device device, const Plan& plan, const std::vector<Argument>& arguments);

}  // namespace reelmesh::gpu::dnn
