// Convolutions by cuDNN's graph API: graphs of one operation, one algorithm for each problem.
#include "ops/cuda/convolve.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "ops/cuda/convolution.hpp"
#include "ops/cuda/digest.hpp"
#include "ops/cuda/dnn.hpp"
#include "ops/cuda/plan_checks.hpp"
#include "tensor/cuda/handles.hpp"

namespace reelmesh::gpu {
namespace {

using dnn::Descriptor, dnn::check, dnn::finalize, dnn::make, dnn::set;

enum Uid : std::int64_t { uid_x = 1, uid_w = 2, uid_y = 3 };

// A dense tensor with extents `memory`: [outer, spatial…, channel]. cuDNN expects the order outer,
// channel, spatial.
Descriptor tensor(DType dtype, Uid uid, const Shape& memory) {
  std::vector<std::int64_t> strides(memory.size(), 1);
  for (std::size_t i = memory.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * memory[i + 1];
  Shape extents = memory;
  std::rotate(extents.begin() + 1, extents.end() - 1, extents.end());
  std::rotate(strides.begin() + 1, strides.end() - 1, strides.end());
  return dnn::tensor({.dtype = dtype, .uid = uid, .extents = extents, .strides = strides});
}

// An operation graph with its descriptors, which must live as long as the graph.
struct Problem {
  Descriptor x, w, y, convolution, operation, graph;
};

Problem convolution_problem(const dnn::Target& target, DType dtype, const Shape& x, const Shape& w,
                            std::int64_t stride, const Shape& y) {
  Problem p;
  p.x = tensor(dtype, uid_x, x);
  p.w = tensor(dtype, uid_w, w);
  p.y = tensor(dtype, uid_y, y);
  const std::size_t spatial = x.size() - 2;
  const std::vector<std::int64_t> ones(spatial, 1), zeros(spatial, 0);
  std::vector<std::int64_t> strides(spatial, stride);
  if (spatial == 3) strides.front() = 1;  // frames
  p.convolution = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {static_cast<std::int64_t>(spatial)});
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
      std::vector<cudnnDataType_t>{CUDNN_DATA_FLOAT});
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
      std::vector<cudnnConvolutionMode_t>{CUDNN_CROSS_CORRELATION});
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, zeros);
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, zeros);
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, ones);
  set(p.convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides);
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

  p.graph = dnn::operation_graph(target, p.operation);
  return p;
}

// Rejects engines that are nondeterministic, reduce in low precision or use FFT or Winograd; for
// float32 without tf32 also those that use tensor cores or down-convert inputs.
bool is_rejected(const Descriptor& config, DType dtype, bool tf32) {
  const auto notes = dnn::Engine(config).notes();
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
        return dtype == DType::float32 && !tf32;
      default:
        return false;
    }
  });
}

struct Plan {
  std::shared_ptr<const Problem> problem;
  Descriptor config;
  dnn::Plan plan;
};

// The accepted engines that can run, in the order of cuDNN's proposals; at most `most`.
std::vector<Plan> convolution_plans(const dnn::Target& target, DType dtype, bool tf32,
                                    const Shape& x, const Shape& w, std::int64_t stride,
                                    const Shape& y, std::size_t most) {
  const auto problem =
      std::make_shared<const Problem>(convolution_problem(target, dtype, x, w, stride, y));
  std::vector<Plan> plans;
  // Mode A has no proposals for some problems (512 channels on compute capability 10.0). Mode B is
  // next, because fallback engines do not use tensor cores.
  for (const cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    for (Descriptor& config : dnn::engine_configs(target, problem->graph, mode)) {
      if (is_rejected(config, dtype, tf32)) continue;
      std::optional<dnn::Plan> plan = dnn::execution_plan(target, config);
      if (!plan || plan->workspace > Convolution::max_workspace) continue;
      plans.push_back({problem, std::move(config), std::move(*plan)});
      if (plans.size() == most) return plans;
    }
  }
  require(!plans.empty(), Status::unavailable, "cuDNN has no deterministic convolution of {} in {}",
          to_string(w), name_of(dtype));
  return plans;
}

// Without a kernel over frames: a 2-D convolution, with all frames as batch items.
void flatten(Shape& x, Shape& w, Shape& y) {
  if (w[1] != 1) return;
  for (Shape* shape : {&x, &y}) {
    (*shape)[0] *= (*shape)[1];
    shape->erase(shape->begin() + 1);
  }
  w.erase(w.begin() + 1);
}

class Convolutions {
 public:
  explicit Convolutions(Device device) : device_(device), target_(dnn::library(device)) {
    trace::recorder().kernels.insert("convolutions: cuDNN " + dnn::version_text());
  }

  void run(const Tensor& x, const Tensor& w, std::int64_t stride, bool tf32, Tensor& y) {
    Shape of_x = x.shape(), of_w = w.shape(), of_y = y.shape();
    flatten(of_x, of_w, of_y);
    auto [entry, is_new] = plans_.try_emplace({x.dtype(), tf32, of_x, of_w, stride});
    if (is_new) {
      try {
        entry->second = std::move(
            convolution_plans(target_, x.dtype(), tf32, of_x, of_w, stride, of_y, 1).front());
      } catch (...) {
        plans_.erase(entry);
        throw;
      }
    }
    run(entry->second.plan, x, w, y);
  }

  std::vector<EngineTiming> time(const Tensor& x, const Tensor& w, std::int64_t stride, bool tf32,
                                 Tensor& y) {
    constexpr std::size_t most = 100;
    Shape of_x = x.shape(), of_w = w.shape(), of_y = y.shape();
    flatten(of_x, of_w, of_y);
    const std::vector<Plan> plans =
        convolution_plans(target_, x.dtype(), tf32, of_x, of_w, stride, of_y, most);
    std::vector<EngineTiming> timings;
    std::vector<std::function<void()>> calls;
    Digest expected;
    for (const Plan& plan : plans) {
      calls.push_back([&] { run(plan.plan, x, w, y); });
      calls.back()();
      const Digest found = digest(y);
      if (timings.empty()) expected = found;
      timings.push_back({dnn::engine_text(plan.config), 0, found == expected});
    }
    const std::vector<double> seconds = measure_seconds(device_, calls);
    for (std::size_t i = 0; i < timings.size(); ++i) timings[i].seconds = seconds[i];
    return timings;
  }

 private:
  void run(const dnn::Plan& plan, const Tensor& x, const Tensor& w, Tensor& y) const {
    dnn::run(device_, plan,
             {{uid_x, x.address_on(device_)},
              {uid_w, w.address_on(device_)},
              {uid_y, y.address_on(device_)}});
  }

  Device device_;
  dnn::Target target_;
  std::map<std::tuple<DType, bool, Shape, Shape, std::int64_t>, Plan> plans_;
};

}  // namespace

void convolve(const Tensor& x, const Tensor& w, std::int64_t stride, bool tf32, Tensor& y) {
  cuda::device_instance<Convolutions>(x.device()).run(x, w, stride, tf32, y);
}

std::vector<EngineTiming> time_convolutions(const Tensor& x, const Tensor& w, std::int64_t stride,
                                            bool tf32, Tensor& y) {
  return cuda::device_instance<Convolutions>(x.device()).time(x, w, stride, tf32, y);
}

void check_convolution_plan(const dnn::Target& target, DType dtype, Shape x, Shape w,
                            std::int64_t stride, Shape y) {
  flatten(x, w, y);
  convolution_plans(target, dtype, false, x, w, stride, y, 1);
}

}  // namespace reelmesh::gpu
