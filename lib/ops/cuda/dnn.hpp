#pragma once
// cuDNN's graph API: for a graph of operations cuDNN proposes engine configurations; an execution
// plan is made from one of them.
#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/handle.hpp"
#include "tensor/cuda/libraries.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu::dnn {

/// The functions of cuDNN that are used.
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
/// Loads cuDNN on the first call. Throws Error(unavailable) if it cannot be loaded.
const Functions& functions();

/// "9.19.0", of the library that is loaded. Throws as functions().
std::string version_text();

/// Throws if a call failed: Error(unavailable) if something is not supported, or memory or a
/// library that cuDNN needs is missing; otherwise Error(internal).
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

/// A tensor of an operation, aligned to 16 bytes. uid: identifies its address when a plan is run.
/// by_value: a scalar in host memory.
struct TensorView {
  DType dtype;
  std::int64_t uid;
  Shape extents;
  std::vector<std::int64_t> strides;  ///< in elements
  bool by_value = false;
};
Descriptor tensor(const TensorView& view);

/// The cuDNN handle of this process for the device, on cuda::stream(device). Never destroyed.
cudnnHandle_t library(Device device);

/// What plans are made for: the GPU of a handle, or one that is only described, to make plans
/// without a GPU.
class Target {
 public:
  explicit Target(cudnnHandle_t library) : library_(library) {}
  /// description: JSON text with the properties of a GPU
  /// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
  explicit Target(const std::string& description);

  /// Sets the attribute of a descriptor for one of the two, before it is finalized.
  void set_handle(const Descriptor& of, cudnnBackendAttributeName_t name) const;
  void set_description(const Descriptor& of, cudnnBackendAttributeName_t name) const;

 private:
  cudnnHandle_t library_ = nullptr;
  Descriptor description_;
};

/// A graph of one operation.
Descriptor operation_graph(const Target& target, const Descriptor& operation);
/// Engine configurations that cuDNN proposes for a graph, best first; empty if it has none.
std::vector<Descriptor> engine_configs(const Target& target, const Descriptor& graph,
                                       cudnnBackendHeurMode_t mode);
/// The engine of a configuration; valid as long as the configuration lives.
class Engine {
 public:
  explicit Engine(const Descriptor& config);
  std::vector<cudnnBackendNumericalNote_t> notes() const;
  std::int64_t index() const;

 private:
  Descriptor owner_;
  cudnnBackendDescriptor_t engine_;
};

/// The settings of an engine configuration (knobs), by type.
using Settings = std::vector<std::pair<cudnnBackendKnobType_t, std::int64_t>>;
Settings engine_settings(const Descriptor& config);
/// "engine 8, settings 3=1 5=64"
std::string engine_text(std::int64_t engine, const Settings& settings);
std::string engine_text(const Descriptor& config);

/// An engine and its settings, to make plans with it for other problems or on other ranks.
struct Choice {
  std::int64_t engine = 0;
  Settings settings;
  Choice() = default;
  explicit Choice(const Descriptor& config);
  bool operator==(const Choice&) const = default;

  std::string packed() const;  ///< "8 3 1 5 64", for other ranks
  static Choice unpacked(const std::string& text);
  std::string text() const;  ///< as engine_text()
};

/// A configuration of a chosen engine, with its descriptors, which must live as long as plans of
/// it.
struct Config {
  Descriptor engine, config;
  std::vector<Descriptor> knobs;
};
/// Throws as check() if the engine does not support the graph.
Config engine_config(const Target& target, const Descriptor& graph, const Choice& choice);

struct Plan {
  Descriptor execution;
  std::int64_t workspace = 0;  ///< bytes of device memory
};
/// The execution plan of a configuration; nullopt if it cannot run.
std::optional<Plan> execution_plan(const Target& target, const Descriptor& config);

struct Argument {
  std::int64_t uid;
  const void* address;  ///< of device memory (by_value: host); outputs are written
};
/// Runs the plan on cuda::stream(device).
void run(Device device, const Plan& plan, const std::vector<Argument>& arguments);

}  // namespace reelmesh::gpu::dnn
