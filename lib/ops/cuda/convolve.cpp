// Convolutions by cuDNN's graph API: graphs of one operation, one algorithm for each problem.
#include "ops/cuda/convolve.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
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

// The accepted engines that can run, in the order of cuDNN's proposals, until there are enough of
// them.
using Enough = std::function<bool(std::size_t)>;
std::vector<Plan> convolution_plans(const dnn::Target& target,
                                    const std::shared_ptr<const Problem>& problem, DType dtype,
                                    bool tf32, const Enough& enough) {
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
      if (enough(plans.size())) return plans;
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
  // Until there are enough; at least one.
  std::vector<Plan> plans(const dnn::Target& target, const Enough& enough) const {
    std::vector<Plan> made = convolution_plans(target, problem(target), dtype, tf32, enough);
    require(!made.empty(), Status::unavailable,
            "cuDNN has no deterministic convolution of {} in {}", to_string(w), name_of(dtype));
    return made;
  }
  std::vector<Plan> plans(const dnn::Target& target, std::size_t max) const {
    return plans(target, [max](std::size_t made) { return made == max; });
  }
};

class Convolutions {
 public:
  explicit Convolutions(Device device) : device_(device), target_(dnn::library(device)) {}

  void run(const Tensor& x, const Tensor& w, std::int64_t stride, bool tf32, Tensor& y) {
    const Plan& plan = used_plan({x.dtype(), tf32, x.shape(), w.shape(), stride});
    if (engines_.insert(plan.choice.engine).second) name_engines();
    run(plan.plan, x, w, y);
  }

  void measure(const ConvolutionShape& shape, bool tf32, bool reproducible, double seconds) {
    const Key key(shape, tf32);
    const std::int64_t start = trace::now_ns();
    const auto left = [&] { return seconds - static_cast<double>(trace::now_ns() - start) * 1e-9; };
    constexpr std::size_t max = 16;
    std::vector<Plan> plans =
        key.plans(target_, [&](std::size_t made) { return made == max || left() < seconds / 2; });
    const std::size_t index = fastest(plans, key, shape, reproducible, left);
    const Plan& plan = plans_.insert_or_assign(key, std::move(plans[index])).first->second;
    first_.insert_or_assign(key, plan.choice);
  }

  std::string choice(const Key& key, std::size_t attempt) {
    if (attempt == 0) {
      return first_.insert_or_assign(key, used_plan(key).choice).first->second.packed();
    }
    std::vector<Plan> plans = key.plans(target_, attempt + 1);
    const std::size_t found = plans.size();
    const Choice& first = first_.at(key);  // it may be any of them
    std::erase_if(plans, [&](const Plan& plan) { return plan.choice == first; });
    require(plans.size() >= attempt, Status::unavailable,
            "cuDNN has no deterministic convolution of {} in {} that can run on all ranks: {} run "
            "on the first",
            to_string(key.w), name_of(key.dtype), found);
    return plans[attempt - 1].choice.packed();
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
    constexpr std::size_t max = 100;
    const std::vector<Plan> plans =
        Key(x.dtype(), tf32, x.shape(), w.shape(), stride).plans(target_, max);
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
  // The index of the plan to use; left: seconds.
  template <class Left>
  std::size_t fastest(const std::vector<Plan>& plans, const Key& key, const ConvolutionShape& shape,
                      bool reproducible, const Left& left) {
    if (plans.size() == 1) return 0;
    FastestCall best;
    try {
      const Tensor x = cancelling_numbers(device_, key.dtype, key.x, 1);
      const Tensor w = cancelling_numbers(device_, key.dtype, key.w, -1);
      Tensor y = Tensor::empty(key.y, key.dtype, device_);
      std::vector<std::function<void()>> calls;
      for (const Plan& plan : plans) calls.push_back([&] { run(plan.plan, x, w, y); });
      best = fastest_call(device_, calls, y, reproducible, left());
    } catch (const Error& error) {
      if (error.status() != Status::unavailable) throw;
      log::debug("convolutions of {} with {} are not measured: {}", to_string(shape.source),
                 to_string(shape.weight), error.what());
    }
    if (best.index > 0) {
      log::debug("convolution of {} with {} in {}: {} in {:.3g} ms, {} in {:.3g} ms",
                 to_string(shape.source), to_string(shape.weight), name_of(key.dtype),
                 plans.front().choice.text(), 1e3 * best.reference, plans[best.index].choice.text(),
                 1e3 * best.seconds);
    }
    return best.index;
  }

  // In the record, which has little room: all in one text.
  void name_engines() {
    auto& kernels = trace::recorder().kernels;
    kernels.erase(engines_text_);
    engines_text_ = fmt::format("convolutions: cuDNN {}, engine{} {}", dnn::version_text(),
                                engines_.size() == 1 ? "" : "s", fmt::join(engines_, " "));
    kernels.insert(engines_text_);
  }

  // The one that is used; if none is yet, that of the first engine that can run.
  const Plan& used_plan(const Key& key) {
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
  std::map<Key, Choice> first_;  // that this rank has taken before any rank could not use it
  std::set<std::int64_t> engines_;
  std::string engines_text_;
};

}  // namespace

void convolve(const Tensor& x, const Tensor& w, std::int64_t stride, bool tf32, Tensor& y) {
  cuda::device_instance<Convolutions>(x.device()).run(x, w, stride, tf32, y);
}

std::vector<EngineTiming> time_convolutions(const Tensor& x, const Tensor& w, std::int64_t stride,
                                            bool tf32, Tensor& y) {
  return cuda::device_instance<Convolutions>(x.device()).time(x, w, stride, tf32, y);
}

void measure_convolution(Device device, const ConvolutionShape& shape, bool tf32, bool reproducible,
                         double seconds) {
  cuda::device_instance<Convolutions>(device).measure(shape, tf32, reproducible, seconds);
}

std::string convolution_choice(Device device, const ConvolutionShape& shape, bool tf32,
                               std::size_t attempt) {
  return cuda::device_instance<Convolutions>(device).choice(Key(shape, tf32), attempt);
}

bool use_convolution(Device device, const ConvolutionShape& shape, bool tf32,
                     const std::string& choice) {
  return cuda::device_instance<Convolutions>(device).use(Key(shape, tf32), choice);
}

std::vector<std::int64_t> convolution_engines(const dnn::Target& target,
                                              const ConvolutionShape& shape, std::size_t max) {
  std::vector<std::int64_t> engines;
  for (const Plan& plan : Key(shape, false).plans(target, max)) {
    engines.push_back(plan.choice.engine);
  }
  return engines;
}

}  // namespace reelmesh::gpu
