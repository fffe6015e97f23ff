// Attention by cuDNN's SDPA operation, from 9.15.1 on: before, results are wrong for some numbers
// of queries or keys that 128 does not divide (PyTorch's issue 169849). The engine and its knobs
// are chosen once for what is the same in all layouts (type, number of keys, channels), and used
// for any number of queries, heads and batch items. So every layout runs the same machine code,
// with the same bits.
#include "ops/cuda/fused_attention.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/trace.hpp"
#include "ops/cuda/dnn.hpp"
#include "tensor/cuda/handles.hpp"

namespace reelmesh::gpu {
namespace {

using dnn::Descriptor, dnn::check, dnn::finalize, dnn::make, dnn::set;

constexpr std::size_t first_version = 91501;
// Numeric values, because cuDNN headers before that version do not define the names.
constexpr auto sdpa_forward = static_cast<cudnnBackendDescriptorType_t>(41);
constexpr auto sdpa_queries = static_cast<cudnnBackendAttributeName_t>(2800);
constexpr auto sdpa_keys = static_cast<cudnnBackendAttributeName_t>(2801);
constexpr auto sdpa_values = static_cast<cudnnBackendAttributeName_t>(2802);
constexpr auto sdpa_out = static_cast<cudnnBackendAttributeName_t>(2803);
constexpr auto sdpa_scale = static_cast<cudnnBackendAttributeName_t>(2805);

enum Uid : std::int64_t { uid_queries = 1, uid_keys, uid_values, uid_out, uid_scale };

// Fewer queries are zero-padded to this number: for a single query cuDNN uses another kernel, and
// the chosen engine has no plan.
constexpr std::int64_t min_queries = 16;

using Strides = std::array<std::int64_t, 4>;  // between items, heads, rows and channels

// items: batch items, or sequences of one batch item. Keys and values have the same strides.
struct Problem {
  DType dtype;
  std::int64_t items, heads, queries, keys, channels;
  Strides of_queries, of_keys, of_out;
  auto operator<=>(const Problem&) const = default;
};

// An engine and its knob values, to make plans with it for other problems.
struct Choice {
  std::int64_t engine;
  std::vector<std::pair<cudnnBackendKnobType_t, std::int64_t>> knobs;
};

// An operation graph with its descriptors, which must live as long as the graph.
struct Operation {
  std::vector<Descriptor> tensors;
  Descriptor operation, graph;
};

Operation operation_of(cudnnHandle_t library, const Problem& p) {
  Operation made;
  made.operation = make(sdpa_forward);
  const auto part = [&](cudnnBackendAttributeName_t name, const dnn::TensorView& view) {
    made.tensors.push_back(dnn::tensor(view));
    set(made.operation, name, made.tensors.back());
  };
  const auto of = [&](Uid uid, std::int64_t rows, const Strides& strides) {
    return dnn::TensorView{.dtype = p.dtype,
                           .uid = uid,
                           .extents = {p.items, p.heads, rows, p.channels},
                           .strides = {strides.begin(), strides.end()}};
  };
  part(sdpa_queries, of(uid_queries, p.queries, p.of_queries));
  part(sdpa_keys, of(uid_keys, p.keys, p.of_keys));
  part(sdpa_values, of(uid_values, p.keys, p.of_keys));
  part(sdpa_out, of(uid_out, p.queries, p.of_out));
  part(sdpa_scale, {.dtype = DType::float32,
                    .uid = uid_scale,
                    .extents = {1, 1, 1, 1},
                    .strides = {1, 1, 1, 1},
                    .by_value = true});
  check(finalize(made.operation), "finalize an attention");
  made.graph = dnn::graph_of(library, made.operation);
  return made;
}

std::vector<std::pair<cudnnBackendKnobType_t, std::int64_t>> knobs_of(const Descriptor& config) {
  constexpr std::int64_t max_count = CUDNN_KNOB_TYPE_COUNTS;
  std::vector<Descriptor> choices;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < max_count; ++i) {
    choices.push_back(make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    raw.push_back(choices.back().get());
  }
  std::int64_t count = 0;
  check(dnn::functions().cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, max_count, &count,
                                                  raw.data()),
        "cudnnBackendGetAttribute of settings");
  std::vector<std::pair<cudnnBackendKnobType_t, std::int64_t>> knobs;
  for (std::int64_t i = 0; i < std::min(count, max_count); ++i) {
    const cudnnBackendDescriptor_t choice = raw[static_cast<std::size_t>(i)];
    knobs.emplace_back(
        dnn::get<cudnnBackendKnobType_t>(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                         CUDNN_TYPE_KNOB_TYPE),
        dnn::get<std::int64_t>(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
  }
  return knobs;
}

// The problem for which an engine is chosen: as many queries as keys, enough heads to fill a GPU.
Problem nominal(DType dtype, std::int64_t keys, std::int64_t channels) {
  constexpr std::int64_t items = 2, heads = 32;
  const std::int64_t row = heads * channels;
  const Strides dense{row, channels, items * row, 1};
  return {dtype, items, heads, keys, keys, channels, dense, {2 * row, channels, items * 2 * row, 1},
          dense};
}

// The first deterministic engine that can run; nullopt if there is none.
std::optional<Choice> choose(cudnnHandle_t library, DType dtype, std::int64_t keys,
                             std::int64_t channels) {
  const Operation operation = operation_of(library, nominal(dtype, keys, channels));
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& config : dnn::configs_of(operation.graph, mode)) {
      const dnn::Engine engine(config);
      const auto notes = engine.notes();
      if (std::ranges::count(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) > 0) continue;
      if (dnn::plan_of(library, config)) return Choice{engine.index(), knobs_of(config)};
    }
  }
  return std::nullopt;
}

struct Plan {
  Operation operation;
  Descriptor engine, config;
  std::vector<Descriptor> knobs;
  dnn::Plan plan;
};

Plan plan_of(cudnnHandle_t library, const Problem& problem, const Choice& choice) {
  Plan made{.operation = operation_of(library, problem)};
  made.engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  set(made.engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, made.operation.graph);
  set(made.engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {choice.engine});
  check(finalize(made.engine), "finalize an engine for attention");
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const auto& [type, value] : choice.knobs) {
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
  check(finalize(made.config), "finalize an engine's settings for attention");
  std::optional<dnn::Plan> plan = dnn::plan_of(library, made.config);
  require(plan.has_value(), Status::unavailable,
          "cuDNN's attention engine does not support {} items, {} heads, {} queries and {} keys of "
          "{} channels in {}; use numerics.attention = own",
          problem.items, problem.heads, problem.queries, problem.keys, problem.channels,
          name_of(problem.dtype));
  made.plan = std::move(*plan);
  return made;
}

// All plans of this process for one device.
class Attentions {
 public:
  explicit Attentions(Device device) : device_(device), library_(dnn::library(device)) {}

  bool has(DType dtype, std::int64_t keys, std::int64_t channels) {
    return choice(dtype, keys, channels).has_value();
  }

  const Plan& plan(const Problem& problem) {
    auto& found = plans_[problem];
    if (found == nullptr) {
      const std::optional<Choice>& made = choice(problem.dtype, problem.keys, problem.channels);
      expect(made.has_value(), "fused attention is not available here");
      found = std::make_unique<Plan>(plan_of(library_, problem, *made));
      trace::recorder().kernels.insert("attention: cuDNN " + dnn::version_text());
    }
    return *found;
  }

  void run(const Problem& problem, const void* queries, const void* keys, const void* values,
           float scale, void* out) {
    // The scale is read from host memory during the call.
    dnn::run(device_, plan(problem).plan,
             {{uid_queries, queries},
              {uid_keys, keys},
              {uid_values, values},
              {uid_out, out},
              {uid_scale, &scale}});
  }

 private:
  const std::optional<Choice>& choice(DType dtype, std::int64_t keys, std::int64_t channels) {
    const auto [place, is_new] = choices_.try_emplace({dtype, keys, channels});
    if (!is_new) return place->second;
    std::string why = "it proposes none";
    try {
      place->second = choose(library_, dtype, keys, channels);
    } catch (const Error& error) {  // not fatal: other kernels are used
      if (error.status() != Status::unavailable) throw;
      why = error.what();
    }
    if (!place->second) {
      log::warning(
          "attention to {} keys of {} channels in {} on {} uses this program's kernels, because "
          "cuDNN has none: {}",
          keys, channels, name_of(dtype), to_string(device_), why);
    }
    return place->second;
  }

  Device device_;
  cudnnHandle_t library_;
  std::map<std::tuple<DType, std::int64_t, std::int64_t>, std::optional<Choice>> choices_;
  std::map<Problem, std::unique_ptr<Plan>> plans_;
};

// A call of this shape: queries [sequence · row, batch, query_parts, head, channel], keys and
// values [sequence · row, batch, key_parts, head, channel]. cuDNN has one batch axis. With several
// sequences it is used for the sequences, and each batch item is a call of its own.
Problem problem_of(const ops::AttentionShape& shape, std::int64_t query_parts,
                   std::int64_t key_parts) {
  const auto& [dtype, sequences, batch, heads, channels, queries, keys] = shape;
  const std::int64_t row = heads * channels;
  const auto strides = [&](std::int64_t rows, std::int64_t parts) {
    const std::int64_t between_rows = batch * parts * row;
    return Strides{sequences > 1 ? rows * between_rows : parts * row, channels, between_rows, 1};
  };
  return {.dtype = dtype,
          .items = sequences > 1 ? sequences : batch,
          .heads = heads,
          .queries = queries,
          .keys = keys,
          .channels = channels,
          .of_queries = strides(queries, query_parts),
          .of_keys = strides(keys, key_parts),
          .of_out = strides(queries, 1)};
}

bool library_has_attention() {
  static const bool has = [] {
    if (why_no_fused_attention().empty()) return true;
    log::warning("attention uses this program's kernels: {}", why_no_fused_attention());
    return false;
  }();
  return has;
}

}  // namespace

const std::string& why_no_fused_attention() {
  static const std::string why = [] {
    try {
      const std::size_t version = dnn::functions().cudnnGetVersion();
      return version >= first_version
                 ? std::string()
                 : fmt::format("found cuDNN {}, expected 9.15.1 or later", dnn::version_text());
    } catch (const Error& error) {
      return std::string(error.what());
    }
  }();
  return why;
}

bool has_fused_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels) {
  return library_has_attention() && cuda::one_of<Attentions>(device).has(dtype, keys, channels);
}

void prepare_fused_attention(Device device, const ops::AttentionShape& shape) {
  ops::AttentionShape padded = shape;
  padded.queries = std::max(padded.queries, min_queries);
  cuda::one_of<Attentions>(device).plan(problem_of(padded, 1, 2));
}

void fused_attention(const ops::Rows& queries, const ops::Rows& keys, const ops::Rows& values,
                     float scale, Tensor& out) {
  const Device device = out.device();
  const std::int64_t batch = out.shape(1), heads = out.shape(2), channels = out.shape(3);
  const std::int64_t sequences = queries.sequences, count = queries.count();
  if (count < min_queries) {
    expect(sequences == 1, "{} sequences of {} queries", sequences, count);
    const Shape& own = queries.tensor.shape();
    Tensor more = Tensor::zeros({min_queries, own[1], own[2], own[3], own[4]},
                                queries.tensor.dtype(), device);
    Tensor result = Tensor::empty({min_queries, batch, heads, channels}, out.dtype(), device);
    more.rows(0, count).copy_from(queries.tensor);
    fused_attention({more, queries.part}, keys, values, scale, result);
    out.copy_from(result.rows(0, count));
    return;
  }
  const ops::AttentionShape shape{out.dtype(), sequences, batch,       heads,
                                  channels,    count,     keys.count()};
  const std::int64_t row = heads * channels;
  const std::int64_t query_item = queries.tensor.shape(2) * row;
  const std::int64_t key_item = keys.tensor.shape(2) * row;
  const Problem problem = problem_of(shape, queries.tensor.shape(2), keys.tensor.shape(2));
  const std::int64_t calls = sequences > 1 ? batch : 1;
  const auto at = [&](const Tensor& tensor, std::int64_t element) {
    return static_cast<const std::byte*>(tensor.address_on(device)) +
           element * size_of(tensor.dtype());
  };
  auto* const first = static_cast<std::byte*>(out.address_on(device));
  for (std::int64_t item = 0; item < calls; ++item) {
    cuda::one_of<Attentions>(device).run(problem,
                                         at(queries.tensor, item * query_item + queries.part * row),
                                         at(keys.tensor, item * key_item + keys.part * row),
                                         at(values.tensor, item * key_item + values.part * row),
                                         scale, first + item * row * size_of(out.dtype()));
  }
}

}  // namespace reelmesh::gpu
