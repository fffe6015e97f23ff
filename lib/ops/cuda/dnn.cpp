#include "ops/cuda/dnn.hpp"

#include <algorithm>
#include <sstream>

#include "base/error.hpp"
#include "tensor/cuda/handles.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh::gpu::dnn {
namespace {

cudnnDataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return CUDNN_DATA_FLOAT;
    case DType::bfloat16:
      return CUDNN_DATA_BFLOAT16;
    case DType::float16:
      return CUDNN_DATA_HALF;
    default:
      fail(Status::internal, "cuDNN with {}", name_of(dtype));
  }
}

struct Library {
  explicit Library(Device device) {
    cudaStream_t stream = cuda::stream(device);  // makes the device the current one
    check(functions().cudnnCreate(&handle), "cudnnCreate");
    check(functions().cudnnSetStream(handle, stream), "cudnnSetStream");
  }
  cudnnHandle_t handle = nullptr;
};

}  // namespace

const Functions& functions() {
  static const Functions all;
  return all;
}

std::string version_text() { return cuda::version_text(functions().cudnnGetVersion()); }

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[1024] = "";
  functions().cudnnGetLastErrorString(detail, sizeof(detail));
  const bool lacking = status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 ||
                       status == CUDNN_STATUS_ALLOC_FAILED ||
                       status == CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING;
  fail(lacking ? Status::unavailable : Status::internal, "{} failed: {} ({})", call,
       functions().cudnnGetErrorString(status), detail);
}

Descriptor make(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  check(functions().cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor");
  return Descriptor(made);
}

cudnnStatus_t finalize(const Descriptor& descriptor) {
  return functions().cudnnBackendFinalize(descriptor.get());
}

void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
         const std::vector<std::int64_t>& values) {
  set(descriptor, name, CUDNN_TYPE_INT64, values);
}

void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name, const Descriptor& value) {
  set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      std::vector<cudnnBackendDescriptor_t>{value.get()});
}

Descriptor tensor(const TensorView& view) {
  Descriptor made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
      std::vector<cudnnDataType_t>{cudnn_type(view.dtype)});
  set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, view.extents);
  set(made, CUDNN_ATTR_TENSOR_STRIDES, view.strides);
  set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, {view.uid});
  set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {view.by_value ? size_of(view.dtype) : 16});
  if (view.by_value) {
    const bool yes = true;
    check(functions().cudnnBackendSetAttribute(made.get(), CUDNN_ATTR_TENSOR_IS_BY_VALUE,
                                               CUDNN_TYPE_BOOLEAN, 1, &yes),
          "cudnnBackendSetAttribute");
  }
  check(finalize(made), "finalize a tensor");
  return made;
}

cudnnHandle_t library(Device device) { return cuda::device_instance<Library>(device).handle; }

Target::Target(const std::string& description)
    : description_(make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)) {
  std::vector<char> text(description.begin(), description.end());
  text.push_back('\0');
  set(description_, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text);
  check(finalize(description_), "finalize the description of a GPU");
}

void Target::set_handle(const Descriptor& of, cudnnBackendAttributeName_t name) const {
  if (library_ == nullptr) return;
  set(of, name, CUDNN_TYPE_HANDLE, std::vector<cudnnHandle_t>{library_});
}

void Target::set_description(const Descriptor& of, cudnnBackendAttributeName_t name) const {
  if (description_) set(of, name, description_);
}

Descriptor operation_graph(const Target& target, const Descriptor& operation) {
  Descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  target.set_handle(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  check(finalize(graph), "finalize a graph");
  return graph;
}

std::vector<Descriptor> engine_configs(const Target& target, const Descriptor& graph,
                                       cudnnBackendHeurMode_t mode) {
  const Descriptor heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
      std::vector<cudnnBackendHeurMode_t>{mode});
  target.set_description(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  if (finalize(heuristics) != CUDNN_STATUS_SUCCESS) return {};
  std::int64_t count = 0;
  const auto results = [&](std::int64_t room, cudnnBackendDescriptor_t* into) {
    check(functions().cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &count, into),
          "cudnnBackendGetAttribute of heuristics");
  };
  results(0, nullptr);
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    configs.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(configs.back().get());
  }
  results(count, raw.data());
  configs.resize(static_cast<std::size_t>(std::min<std::int64_t>(count, std::ssize(configs))));
  return configs;
}

Engine::Engine(const Descriptor& config)
    : owner_(make(CUDNN_BACKEND_ENGINE_DESCRIPTOR)), engine_(owner_.get()) {
  std::int64_t count = 0;
  check(functions().cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine_),
        "cudnnBackendGetAttribute of an engine");
}

std::vector<cudnnBackendNumericalNote_t> Engine::notes() const {
  std::int64_t count = 0;
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  check(functions().cudnnBackendGetAttribute(
            engine_, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
            static_cast<std::int64_t>(notes.size()), &count, notes.data()),
        "cudnnBackendGetAttribute of an engine's notes");
  notes.resize(static_cast<std::size_t>(std::min<std::int64_t>(count, std::ssize(notes))));
  return notes;
}

std::int64_t Engine::index() const {
  return get<std::int64_t>(engine_, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64);
}

Settings engine_settings(const Descriptor& config) {
  constexpr std::int64_t max_count = CUDNN_KNOB_TYPE_COUNTS;
  std::vector<Descriptor> choices;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < max_count; ++i) {
    choices.push_back(make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    raw.push_back(choices.back().get());
  }
  std::int64_t count = 0;
  check(functions().cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, max_count, &count,
                                             raw.data()),
        "cudnnBackendGetAttribute of settings");
  Settings settings;
  for (std::int64_t i = 0; i < std::min(count, max_count); ++i) {
    const cudnnBackendDescriptor_t choice = raw[static_cast<std::size_t>(i)];
    settings.emplace_back(
        get<cudnnBackendKnobType_t>(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE),
        get<std::int64_t>(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
  }
  return settings;
}

std::string engine_text(std::int64_t engine, const Settings& settings) {
  std::string text = fmt::format("engine {}", engine);
  for (const auto& [type, value] : settings) {
    text += fmt::format("{} {}={}", text.find(',') == std::string::npos ? ", settings" : "",
                        static_cast<int>(type), value);
  }
  return text;
}

std::string engine_text(const Descriptor& config) {
  return engine_text(Engine(config).index(), engine_settings(config));
}

Choice::Choice(const Descriptor& config)
    : engine(Engine(config).index()), settings(engine_settings(config)) {}

std::string Choice::packed() const {
  std::string text = std::to_string(engine);
  for (const auto& [type, value] : settings) {
    text += fmt::format(" {} {}", static_cast<int>(type), value);
  }
  return text;
}

Choice Choice::unpacked(const std::string& text) {
  std::istringstream words(text);
  Choice choice;
  words >> choice.engine;
  int type = 0;
  std::int64_t value = 0;
  while (words >> type >> value) {
    choice.settings.emplace_back(static_cast<cudnnBackendKnobType_t>(type), value);
  }
  return choice;
}

std::string Choice::text() const { return engine_text(engine, settings); }

Config engine_config(const Target& target, const Descriptor& graph, const Choice& choice) {
  Config made{.engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR)};
  set(made.engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
  set(made.engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {choice.engine});
  target.set_description(made.engine, CUDNN_ATTR_ENGINE_DEVICEPROP);
  check(finalize(made.engine), "finalize an engine");
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const auto& [type, value] : choice.settings) {
    const Descriptor& knob = made.knobs.emplace_back(make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
        std::vector<cudnnBackendKnobType_t>{type});
    set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, {value});
    check(finalize(knob), "finalize a setting");
    raw.push_back(knob.get());
  }
  made.config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  set(made.config, CUDNN_ATTR_ENGINECFG_ENGINE, made.engine);
  if (!raw.empty()) {
    set(made.config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw);
  }
  check(finalize(made.config), "finalize an engine's settings");
  return made;
}

std::optional<Plan> execution_plan(const Target& target, const Descriptor& config) {
  Plan plan{.execution = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
  target.set_handle(plan.execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  target.set_description(plan.execution, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  set(plan.execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (finalize(plan.execution) != CUDNN_STATUS_SUCCESS) return std::nullopt;
  plan.workspace = get<std::int64_t>(plan.execution.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64);
  return plan;
}

void run(Device device, const Plan& plan, const std::vector<Argument>& arguments) {
  const PurposeScope purpose(Purpose::workspace);
  Tensor workspace = Tensor::empty({plan.workspace}, DType::uint8, device);
  std::vector<std::int64_t> uids;
  std::vector<const void*> addresses;
  for (const Argument& argument : arguments) {
    uids.push_back(argument.uid);
    addresses.push_back(argument.address);
  }
  const Descriptor pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids);
  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses);
  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
      std::vector<void*>{workspace.address_on(device)});
  check(finalize(pack), "finalize arguments");
  check(functions().cudnnBackendExecute(library(device), plan.execution.get(), pack.get()),
        "cudnnBackendExecute");
}

}  // namespace reelmesh::gpu::dnn
