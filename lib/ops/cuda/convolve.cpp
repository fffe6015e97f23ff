// Convolutions through the graph interface of cuDNN: one operation, one algorithm for each problem.
#include "ops/cuda/convolve.hpp"

#include <cudnn.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "tensor/cuda/handles.hpp"
#include "tensor/cuda/libraries.hpp"
#include "tensor/numerics.hpp"

namespace reelmesh::gpu {
namespace {

// What is used of cuDNN.
struct Functions {
#define REELMESH_DNN(f) REELMESH_LIBRARY_FUNCTION(cuda::cudnn(), f)
  REELMESH_DNN(cudnnBackendCreateDescriptor);
  REELMESH_DNN(cudnnBackendDestroyDescriptor);
  REELMESH_DNN(cudnnBackendExecute);
  REELMESH_DNN(cudnnBackendFinalize);
  REELMESH_DNN(cudnnBackendGetAttribute);
  REELMESH_DNN(cudnnBackendSetAttribute);
  REELMESH_DNN(cudnnCreate);
  REELMESH_DNN(cudnnDestroy);
  REELMESH_DNN(cudnnGetErrorString);
  REELMESH_DNN(cudnnGetLastErrorString);
  REELMESH_DNN(cudnnSetStream);
#undef REELMESH_DNN
};

const Functions& dnn() {
  static const Functions functions;
  return functions;
}

template <auto destroy>
struct Destroy {
  void operator()(auto made) const { (dnn().*destroy)(made); }
};
using Library = Handle<cudnnHandle_t, Destroy<&Functions::cudnnDestroy>{}>;
using Descriptor =
    Handle<cudnnBackendDescriptor_t, Destroy<&Functions::cudnnBackendDestroyDescriptor>{}>;

constexpr std::int64_t most_workspace = 512 << 20;

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[1024] = "";
  dnn().cudnnGetLastErrorString(detail, sizeof(detail));
  const bool lacking = status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 ||
                       status == CUDNN_STATUS_ALLOC_FAILED ||
                       status == CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING;
  fail(lacking ? Status::unavailable : Status::internal, "{} failed: {} ({})", call,
       dnn().cudnnGetErrorString(status), detail);
}

Descriptor make(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  check(dnn().cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor");
  return Descriptor(made);
}

template <class T>
void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, const std::vector<T>& values) {
  check(dnn().cudnnBackendSetAttribute(descriptor.get(), name, type,
                                       static_cast<std::int64_t>(values.size()), values.data()),
        "cudnnBackendSetAttribute");
}

void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
         const std::vector<std::int64_t>& values) {
  set(descriptor, name, CUDNN_TYPE_INT64, values);
}

void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name, const Descriptor& value) {
  set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      std::vector<cudnnBackendDescriptor_t>{value.get()});
}

cudnnStatus_t finalize(const Descriptor& descriptor) {
  return dnn().cudnnBackendFinalize(descriptor.get());
}

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return CUDNN_DATA_FLOAT;
    case DType::bfloat16:
      return CUDNN_DATA_BFLOAT16;
    case DType::float16:
      return CUDNN_DATA_HALF;
    default:
      fail(Status::internal, "convolution of {}", name_of(dtype));
  }
}

enum Uid : std::int64_t { uid_x = 1, uid_w = 2, uid_y = 3 };

// Extents of memory in the order [outer, spatial…, channel], as cuDNN counts them: outer, channel,
// spatial.
Descriptor tensor(DType dtype, Uid uid, const Shape& memory) {
  std::vector<std::int64_t> strides(memory.size(), 1);
  for (std::size_t i = memory.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * memory[i + 1];
  Shape extents = memory;
  std::rotate(extents.begin() + 1, extents.end() - 1, extents.end());
  std::rotate(strides.begin() + 1, strides.end() - 1, strides.end());
  Descriptor made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
      std::vector<cudnnDataType_t>{type_of(dtype)});
  set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
  set(made, CUDNN_ATTR_TENSOR_STRIDES, strides);
  set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, {uid});
  set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16});
  check(finalize(made), "finalize a tensor");
  return made;
}

// The parts of an operation, which live as long as its graph.
struct Problem {
  Descriptor x, w, y, convolution, operation, graph;
};

Problem problem_of(cudnnHandle_t library, DType dtype, const Shape& x, const Shape& w,
                   const Shape& y) {
  Problem p;
  p.x = tensor(dtype, uid_x, x);
  p.w = tensor(dtype, uid_w, w);
  p.y = tensor(dtype, uid_y, y);
  const std::size_t spatial = x.size() - 2;
  const std::vector<std::int64_t> ones(spatial, 1), zeros(spatial, 0);
  p.convolution = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {static_cast<std::int64_t>(spatial)});
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
      std::vector<cudnnDataType_t>{CUDNN_DATA_FLOAT});
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
      std::vector<cudnnConvolutionMode_t>{CUDNN_CROSS_CORRELATION});
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, zeros);
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, zeros);
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, ones);
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, ones);
  check(finalize(p.convolution), "finalize a convolution");

  p.operation = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  set(p.operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, p.x);
  set(p.operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, p.w);
  set(p.operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, p.y);
  set(p.operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, p.convolution);
  set(p.operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT,
      std::vector<float>{1.0F});
  set(p.operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT,
      std::vector<float>{0.0F});
  check(finalize(p.operation), "finalize a convolution's operation");

  p.graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(p.graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
      std::vector<cudnnHandle_t>{library});
  set(p.graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, p.operation);
  check(finalize(p.graph), "finalize a graph");
  return p;
}

// Engines whose sums have no fixed order, or are of something else than products of the numbers.
bool unwanted(const Descriptor& config, DType dtype) {
  const Descriptor engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  check(dnn().cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
        "cudnnBackendGetAttribute of an engine");
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  check(dnn().cudnnBackendGetAttribute(
            engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
            static_cast<std::int64_t>(notes.size()), &count, notes.data()),
        "cudnnBackendGetAttribute of an engine's notes");
  notes.resize(
      static_cast<std::size_t>(std::min<std::int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)));
  return std::any_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return true;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:  // TF32
        return dtype == DType::float32 && !numerics.tf32;
      default:
        return false;
    }
  });
}

std::vector<Descriptor> configs_of(const Problem& problem, cudnnBackendHeurMode_t mode) {
  const Descriptor heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, problem.graph);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
      std::vector<cudnnBackendHeurMode_t>{mode});
  if (finalize(heuristics) != CUDNN_STATUS_SUCCESS) return {};
  std::int64_t count = 0;
  check(dnn().cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        "cudnnBackendGetAttribute of heuristics");
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    configs.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(configs.back().get());
  }
  check(dnn().cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data()),
        "cudnnBackendGetAttribute of heuristics");
  configs.resize(static_cast<std::size_t>(std::min<std::int64_t>(count, std::ssize(configs))));
  return configs;
}

struct Plan {
  Problem problem;
  Descriptor config, execution;
  std::int64_t workspace = 0;
};

// The first that can run, in the order in which cuDNN proposes them.
Plan plan_of(cudnnHandle_t library, DType dtype, const Shape& x, const Shape& w, const Shape& y) {
  Plan plan{.problem = problem_of(library, dtype, x, w, y), .config = {}, .execution = {}};
  // Mode B where A has no proposals (512 channels on compute capability 10.0): the engines of the
  // fallback do without tensor cores.
  for (const cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    for (Descriptor& config : configs_of(plan.problem, mode)) {
      if (unwanted(config, dtype)) continue;
      Descriptor execution = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      set(execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
          std::vector<cudnnHandle_t>{library});
      set(execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (finalize(execution) != CUDNN_STATUS_SUCCESS) continue;
      std::int64_t count = 0, workspace = 0;
      check(
          dnn().cudnnBackendGetAttribute(execution.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &count, &workspace),
          "cudnnBackendGetAttribute of a plan");
      if (workspace > most_workspace) continue;
      plan.config = std::move(config);
      plan.execution = std::move(execution);
      plan.workspace = workspace;
      return plan;
    }
  }
  fail(Status::unavailable, "cuDNN has no convolution of {} in {} with a fixed order of its sums",
       to_string(w), name_of(dtype));
}

class Convolutions {
 public:
  explicit Convolutions(Device device) : device_(device) {
    cudaStream_t stream = cuda::stream(device);
    cudnnHandle_t made = nullptr;
    check(dnn().cudnnCreate(&made), "cudnnCreate");
    library_ = Library(made);
    check(dnn().cudnnSetStream(library_.get(), stream), "cudnnSetStream");
  }

  void run(const Tensor& x, const Tensor& w, const Tensor& y) {
    Shape of_x = x.shape(), of_w = w.shape(), of_y = y.shape();
    if (of_w[1] == 1) {  // of single frames: two spatial axes, all frames are items
      for (Shape* shape : {&of_x, &of_y}) {
        (*shape)[0] *= (*shape)[1];
        shape->erase(shape->begin() + 1);
      }
      of_w.erase(of_w.begin() + 1);
    }
    auto [place, is_new] = plans_.try_emplace({x.dtype(), of_x, of_w});
    if (is_new) {
      try {
        place->second = plan_of(library_.get(), x.dtype(), of_x, of_w, of_y);
      } catch (...) {
        plans_.erase(place);
        throw;
      }
    }
    const Plan& plan = place->second;
    const Tensor workspace = Tensor::empty({plan.workspace}, DType::uint8, device_);
    const Descriptor arguments = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(arguments, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {uid_x, uid_w, uid_y});
    set(arguments, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
        std::vector<void*>{x.address_on(device_), w.address_on(device_), y.address_on(device_)});
    set(arguments, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
        std::vector<void*>{workspace.address_on(device_)});
    check(finalize(arguments), "finalize arguments");
    check(dnn().cudnnBackendExecute(library_.get(), plan.execution.get(), arguments.get()),
          "cudnnBackendExecute");
  }

 private:
  Device device_;
  Library library_;
  std::map<std::tuple<DType, Shape, Shape>, Plan> plans_;
};

// Never destroyed, as the streams that they run on.
Convolutions& convolutions_on(Device device) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::map<int, std::unique_ptr<Convolutions>>;
  const std::lock_guard lock(mutex);
  auto& found = all[device.cuda];
  if (found == nullptr) found = std::make_unique<Convolutions>(device);
  return *found;
}

}  // namespace

void convolve(const Tensor& x, const Tensor& w, const Tensor& y) {
  convolutions_on(x.device()).run(x, w, y);
}

}  // namespace reelmesh::gpu
