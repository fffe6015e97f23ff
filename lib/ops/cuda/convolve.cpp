// Convolutions by cuDNN's graph API: graphs of one operation, one algorithm for each problem.
#include "ops/cuda/convolve.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "ops/cuda/convolution.hpp"
#include "ops/cuda/digest.hpp"
#include "ops/cuda/dnn.hpp"
#include "ops/cuda/plan_checks.hpp"
#include "tensor/cuda/handles.hpp"

namespace reelmesh::gpu {
namespace {

using dnn::Choice, dnn::Descriptor, dnn::check, dnn::finalize, dnn::make, dnn::set;

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
  Choice choice;
  dnn::Config config;
  dnn::Plan plan;
};

// Nothing if the engine cannot run here.
std::optional<Plan> convolution_plan(const dnn::Target& target,
                                     const std::shared_ptr<const Problem>& problem,
                                     const Choice& choice) {
  Plan made{.problem = problem, .choice = choice};
  try {
    made.config = dnn::engine_config(target, problem->graph, choice);
  } catch (const Error& error) {
    if (error.status() != Status::unavailable) throw;
    return std::nullopt;
  }
  std::optional<dnn::Plan> plan = dnn::execution_plan(target, made.config.config);
  if (!plan || plan->workspace > Convolution::max_workspace) return std::nullopt;
  made.plan = std::move(*plan);
  return made;
}

// The accepted engines that can run, in the order of cuDNN's proposals; at most `most`.
std::vector<Plan> convolution_plans(const dnn::Target& target,
                                    const std::shared_ptr<const Problem>& problem, DType dtype,
                                    bool tf32, std::size_t most) {
  std::vector<Plan> plans;
  // Mode A has no proposals for some problems (512 channels on compute capability 10.0). Mode B is
  // next, because fallback engines do not use tensor cores.
  for (const cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& config : dnn::engine_configs(target, problem->graph, mode)) {
      const Choice choice(config);
      const auto same = [&](const Plan& other) { return other.choice == choice; };
      if (is_rejected(config, dtype, tf32) || std::ranges::any_of(plans, same)) continue;
      std::optional<Plan> plan = convolution_plan(target, problem, choice);
      if (!plan) continue;
      plans.push_back(std::move(*plan));
      if (plans.size() == most) return plans;
    }
  }
  return plans;
}

// What a plan is made for. Without a kernel over frames it is a 2-D convolution, with all frames as
// batch items.
struct Key {
  DType dtype;
  bool tf32;
  Shape x, w, y;
  std::int64_t stride;
  auto operator<=>(const Key&) const = default;

  // x: [item, frame, row, column, in], w: [out, kt, kernel, kernel, in].
  Key(DType type, bool with_tf32, const Shape& source, const Shape& weight, std::int64_t step)
      : dtype(type),
        tf32(with_tf32),
        x(source),
        w(weight),
        y{x[0], x[1] - w[1] + 1, (x[2] - w[2]) / step + 1, (x[3] - w[3]) / step + 1, w[0]},
        stride(step) {
    if (w[1] != 1) return;
    for (Shape* shape : {&x, &y}) {
      (*shape)[0] *= (*shape)[1];
      shape->erase(shape->begin() + 1);
    }
    w.erase(w.begin() + 1);
  }
  explicit Key(const ConvolutionShape& shape, bool with_tf32)
      : Key(shape.dtype, with_tf32, shape.source, shape.weight, shape.stride) {}

  std::shared_ptr<const Problem> problem(const dnn::Target& target) const {
    return std::make_shared<const Problem>(convolution_problem(target, dtype, x, w, stride, y));
  }
  // At most `most`, at least one.
  std::vector<Plan> plans(const dnn::Target& target, std::size_t most) const {
    std::vector<Plan> made = convolution_plans(target, problem(target), dtype, tf32, most);
    require(!made.empty(), Status::unavailable,
            "cuDNN has no deterministic convolution of {} in {}", to_string(w), name_of(dtype));
    return made;
  }
};

class Convolutions {
 public:
  explicit Convolutions(Device device) : device_(device), target_(dnn::library(device)) {
    trace::recorder().kernels.insert("convolutions: cuDNN " + dnn::version_text());
  }

  void run(const Tensor& x, const Tensor& w, std::int64_t stride, bool tf32, Tensor& y) {
    run(first_plan({x.dtype(), tf32, x.shape(), w.shape(), stride}).plan, x, w, y);
  }

  std::string choice(const Key& key, std::size_t attempt) {
    if (attempt == 0) return first_plan(key).choice.packed();
    const std::vector<Plan> plans = key.plans(target_, attempt + 1);
    require(plans.size() > attempt, Status::unavailable,
            "cuDNN has no deterministic convolution of {} in {} that can run on all ranks: {} run "
            "on the first",
            to_string(key.w), name_of(key.dtype), plans.size());
    return plans.back().choice.packed();
  }

  bool use(const Key& key, const std::string& packed) {
    const Choice choice = Choice::unpacked(packed);
    const auto found = plans_.find(key);
    if (found != plans_.end() && found->second.choice == choice) return true;
    std::optional<Plan> plan = convolution_plan(target_, key.problem(target_), choice);
    if (plan) plans_.insert_or_assign(key, std::move(*plan));
    return plan.has_value();
  }

  std::vector<EngineTiming> time(const Tensor& x, const Tensor& w, std::int64_t stride, bool tf32,
                                 Tensor& y) {
    constexpr std::size_t most = 100;
    const std::vector<Plan> plans =
        Key(x.dtype(), tf32, x.shape(), w.shape(), stride).plans(target_, most);
    std::vector<EngineTiming> timings;
    std::vector<std::function<void()>> calls;
    Digest expected;
    for (const Plan& plan : plans) {
      calls.push_back([&] { run(plan.plan, x, w, y); });
      calls.back()();
      const Digest found = digest(y);
      if (timings.empty()) expected = found;
      timings.push_back({plan.choice.text(), 0, found == expected});
    }
    const std::vector<double> seconds = measure_seconds(device_, calls);
    for (std::size_t i = 0; i < timings.size(); ++i) timings[i].seconds = seconds[i];
    return timings;
  }

 private:
  // The one that is used; if none is yet, that of the first engine that can run.
  const Plan& first_plan(const Key& key) {
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    return plans_.emplace(key, std::move(key.plans(target_, 1).front())).first->second;
  }

  void run(const dnn::Plan& plan, const Tensor& x, const Tensor& w, Tensor& y) const {
    dnn::run(device_, plan,
             {{uid_x, x.address_on(device_)},
              {uid_w, w.address_on(device_)},
              {uid_y, y.address_on(device_)}});
  }

  Device device_;
  dnn::Target target_;
  std::map<Key, Plan> plans_;
};

}  // namespace

void convolve(const Tensor& x, const Tensor& w, std::int64_t stride, bool tf32, Tensor& y) {
  cuda::device_instance<Convolutions>(x.device()).run(x, w, stride, tf32, y);
}

std::vector<EngineTiming> time_convolutions(const Tensor& x, const Tensor& w, std::int64_t stride,
                                            bool tf32, Tensor& y) {
  return cuda::device_instance<Convolutions>(x.device()).time(x, w, stride, tf32, y);
}

std::string convolution_choice(Device device, const ConvolutionShape& shape, bool tf32,
                               std::size_t attempt) {
  return cuda::device_instance<Convolutions>(device).choice(Key(shape, tf32), attempt);
}

bool use_convolution(Device device, const ConvolutionShape& shape, bool tf32,
                     const std::string& choice) {
  return cuda::device_instance<Convolutions>(device).use(Key(shape, tf32), choice);
}

void check_convolution_plan(const dnn::Target& target, const ConvolutionShape& shape) {
  Key(shape, false).plans(target, 1);
}

}  // namespace reelmesh::gpu
