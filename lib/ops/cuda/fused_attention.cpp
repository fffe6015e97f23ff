// Attention by cuDNN's SDPA operation, from 9.15.1 on: before, results are wrong for some numbers
// of queries or keys that 128 does not divide (PyTorch's issue 169849). The engine and its knobs
// are chosen once for what is the same in all layouts (type, number of keys, channels), and used
// for any number of queries, heads and batch items. So every layout runs the same machine code,
// with the same bits. The first deterministic engine that cuDNN proposes is the reference; one that
// was measured to be faster takes its place if it has the reference's bits.
#include "ops/cuda/fused_attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/trace.hpp"
#include "ops/cuda/digest.hpp"
#include "ops/cuda/dnn.hpp"
#include "ops/cuda/plan_checks.hpp"
#include "tensor/cuda/handles.hpp"
#include "tensor/cuda/runtime.hpp"
#include "tensor/cuda/strided_copy.hpp"

namespace reelmesh::gpu {
namespace {

using dnn::Choice, dnn::Descriptor, dnn::check, dnn::finalize, dnn::make, dnn::set;

constexpr std::size_t first_version = 91501;
// Numeric values, because cuDNN headers before that version do not define the names.
constexpr auto sdpa_forward = static_cast<cudnnBackendDescriptorType_t>(41);
constexpr auto sdpa_queries = static_cast<cudnnBackendAttributeName_t>(2800);
constexpr auto sdpa_keys = static_cast<cudnnBackendAttributeName_t>(2801);
constexpr auto sdpa_values = static_cast<cudnnBackendAttributeName_t>(2802);
constexpr auto sdpa_out = static_cast<cudnnBackendAttributeName_t>(2803);
constexpr auto sdpa_sums = static_cast<cudnnBackendAttributeName_t>(2804);
constexpr auto sdpa_scale = static_cast<cudnnBackendAttributeName_t>(2805);

enum Uid : std::int64_t { uid_queries = 1, uid_keys, uid_values, uid_out, uid_scale, uid_sums };

// Fewer queries are zero-padded to this number: for a single query cuDNN uses another kernel, and
// the chosen engine has no plan.
constexpr std::int64_t min_queries = 16;

using Strides = std::array<std::int64_t, 4>;  // between items, heads, rows and channels

// items: batch items, or sequences of one batch item. Keys and values have the same strides.
struct Problem {
  DType dtype;
  std::int64_t items, heads, queries, keys, channels;
  Strides of_queries, of_keys, of_out;
  std::int64_t sum_stride = 0;  // between items of the logarithms of sums; 0: they are not wanted
  auto operator<=>(const Problem&) const = default;
};

// An operation graph with its descriptors, which must live as long as the graph.
struct Operation {
  std::vector<Descriptor> tensors;
  Descriptor operation, graph;
};

Operation attention_operation(const dnn::Target& target, const Problem& p) {
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
  if (p.sum_stride > 0) {
    part(sdpa_sums, {.dtype = DType::float32,
                     .uid = uid_sums,
                     .extents = {p.items, p.heads, p.queries, 1},
                     .strides = {p.sum_stride, p.queries, 1, 1}});
  }
  part(sdpa_scale, {.dtype = DType::float32,
                    .uid = uid_scale,
                    .extents = {1, 1, 1, 1},
                    .strides = {1, 1, 1, 1},
                    .by_value = true});
  check(finalize(made.operation), "finalize an attention");
  made.graph = dnn::operation_graph(target, made.operation);
  return made;
}

// The problem for which an engine is chosen: as many queries as keys, enough heads to fill a GPU.
Problem nominal(DType dtype, std::int64_t keys, std::int64_t channels) {
  constexpr std::int64_t items = 2, heads = 32;
  const std::int64_t row = heads * channels;
  const Strides dense{row, channels, items * row, 1};
  return {dtype, items, heads, keys, keys, channels, dense, {2 * row, channels, items * 2 * row, 1},
          dense};
}

// The deterministic engines that can run, in the order of cuDNN's proposals; at most `max`. The
// first is the reference.
std::vector<Choice> attention_choices(const dnn::Target& target, DType dtype, std::int64_t keys,
                                      std::int64_t channels, std::size_t max,
                                      bool with_sums = false) {
  Problem problem = nominal(dtype, keys, channels);
  if (with_sums) problem.sum_stride = problem.heads * problem.queries;
  const Operation operation = attention_operation(target, problem);
  std::vector<Choice> choices;
  for (const cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK, CUDNN_HEUR_MODE_B}) {
    for (const Descriptor& config : dnn::engine_configs(target, operation.graph, mode)) {
      const auto notes = dnn::Engine(config).notes();
      if (std::ranges::count(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) > 0) continue;
      Choice choice(config);
      if (std::ranges::count(choices, choice) > 0 || !dnn::execution_plan(target, config)) continue;
      choices.push_back(std::move(choice));
      if (choices.size() == max) return choices;
    }
  }
  return choices;
}

struct Plan {
  Operation operation;
  dnn::Config config;
  dnn::Plan plan;
};

Plan attention_plan(const dnn::Target& target, const Problem& problem, const Choice& choice) {
  Plan made{.operation = attention_operation(target, problem)};
  made.config = dnn::engine_config(target, made.operation.graph, choice);
  std::optional<dnn::Plan> plan = dnn::execution_plan(target, made.config.config);
  require(plan.has_value(), Status::unavailable,
          "cuDNN's attention engine does not support {} items, {} heads, {} queries and {} keys of "
          "{} channels in {}; use numerics.attention = own",
          problem.items, problem.heads, problem.queries, problem.keys, problem.channels,
          name_of(problem.dtype));
  made.plan = std::move(*plan);
  return made;
}

// A call of this shape: queries [sequence · row, batch, query_parts, head, channel], keys and
// values [sequence · row, batch, key_parts, head, channel]. cuDNN has one batch axis. With several
// sequences it is used for the sequences, and each batch item is a call of its own.
Problem attention_problem(const ops::AttentionShape& shape, std::int64_t query_parts,
                          std::int64_t key_parts) {
  const std::int64_t row = shape.heads * shape.channels;
  const auto strides = [&](std::int64_t rows, std::int64_t parts) {
    const std::int64_t between_rows = shape.batch * parts * row;
    return Strides{shape.sequences > 1 ? rows * between_rows : parts * row, shape.channels,
                   between_rows, 1};
  };
  return {.dtype = shape.dtype,
          .items = shape.sequences > 1 ? shape.sequences : shape.batch,
          .heads = shape.heads,
          .queries = shape.queries,
          .keys = shape.keys,
          .channels = shape.channels,
          .of_queries = strides(shape.queries, query_parts),
          .of_keys = strides(shape.keys, key_parts),
          .of_out = strides(shape.queries, 1)};
}

// Operands for measurements.
class Operands {
 public:
  Operands(Device device, const ops::AttentionShape& shape)
      : device_(device),
        values_(numbers_to_measure(
            device, shape.dtype,
            {2 * shape.sequences * shape.batch * shape.keys * shape.heads * shape.channels})),
        out_(Tensor::empty(
            {shape.sequences * shape.batch * shape.queries * shape.heads * shape.channels},
            shape.dtype, device)) {}

  // Queries are the first keys and values, which are as many numbers or more. heads: of the
  // operands, if the problem has only some of them.
  void run(const Problem& problem, const dnn::Plan& plan, std::int64_t heads = 0) {
    const float scale = 1 / std::sqrt(static_cast<float>(problem.channels));
    const auto* keys = static_cast<const std::byte*>(values_.address_on(device_));
    const auto* values =
        keys + std::max(heads, problem.heads) * problem.channels * size_of(problem.dtype);
    dnn::run(device_, plan,
             {{uid_queries, keys},
              {uid_keys, keys},
              {uid_values, values},
              {uid_out, out_.address_on(device_)},
              {uid_scale, &scale}});
  }
  Digest output_digest(const Problem& problem, const dnn::Plan& plan) {
    fill_zero(out_);
    run(problem, plan);
    return digest(out_);
  }
  // Of the queries and heads of `part`, a problem with the operands of the whole, of `heads` heads.
  Digest part_digest(const Problem& problem, const dnn::Plan& plan, const Problem& part,
                     std::int64_t heads) {
    run(problem, plan, heads);
    Tensor dense = Tensor::empty({part.queries, part.heads, part.channels}, part.dtype, device_);
    copy_strided({.axes = 3,
                  .extent = {part.queries, part.heads, part.channels},
                  .source = {part.of_out[2], part.of_out[1], part.of_out[3]},
                  .target = {part.heads * part.channels, part.channels, 1}},
                 out_, dense);
    return digest(dense);
  }

 private:
  static void fill_zero(Tensor& tensor) {
    cuda::fill_zero(tensor.device(), tensor.address_on(tensor.device()), tensor.bytes());
  }

  Device device_;
  Tensor values_, out_;
};

// All plans of this process for one device.
class Attentions {
 public:
  explicit Attentions(Device device) : device_(device), target_(dnn::library(device)) {}

  bool has(DType dtype, std::int64_t keys, std::int64_t channels, bool with_sums = false) {
    return choice(dtype, keys, channels, with_sums).has_value();
  }

  const Plan& plan(const Problem& problem) {
    auto& found = plans_[problem];
    if (found == nullptr) {
      const std::optional<Choice>& made =
          choice(problem.dtype, problem.keys, problem.channels, problem.sum_stride > 0);
      expect(made.has_value(), "fused attention is not available here");
      found = std::make_unique<Plan>(attention_plan(target_, problem, *made));
      trace::recorder().kernels.insert(
          fmt::format("attention: cuDNN {}, {}", dnn::version_text(), made->text()));
    }
    return *found;
  }

  // sums: if the problem has a stride of them.
  void run(const Problem& problem, const void* queries, const void* keys, const void* values,
           float scale, void* out, void* sums) {
    // The scale is read from host memory during the call.
    std::vector<dnn::Argument> arguments{{uid_queries, queries},
                                         {uid_keys, keys},
                                         {uid_values, values},
                                         {uid_out, out},
                                         {uid_scale, &scale}};
    if (problem.sum_stride > 0) arguments.push_back({uid_sums, sums});
    dnn::run(device_, plan(problem).plan, arguments);
  }

  struct Measured {
    Choice choice;
    EngineTiming timing;
  };
  // The reference, then all others.
  std::vector<Measured> measure(const ops::AttentionShape& shape) {
    constexpr std::size_t max = 32;
    const Problem problem = attention_problem(shape, 1, 2);
    Operands operands(device_, shape);
    std::vector<Measured> measured;
    std::vector<Plan> plans;
    Digest expected;
    for (Choice& choice :
         attention_choices(target_, shape.dtype, shape.keys, shape.channels, max)) {
      std::optional<Plan> plan = if_available(problem, choice);
      if (!plan && measured.empty()) return {};
      if (!plan) continue;
      const Digest found = operands.output_digest(problem, plan->plan);
      if (measured.empty()) expected = found;
      const std::string text = choice.text();
      measured.push_back({std::move(choice), {text, 0, found == expected}});
      plans.push_back(std::move(*plan));
    }
    std::vector<std::function<void()>> calls;
    for (const Plan& plan : plans) calls.push_back([&] { operands.run(problem, plan.plan); });
    if (calls.empty()) return {};
    const std::vector<double> seconds = measure_seconds(device_, calls);
    for (std::size_t i = 0; i < measured.size(); ++i) measured[i].timing.seconds = seconds[i];
    return measured;
  }

  // The fastest choice for any numbers of queries and heads; with `reproducible` one that has the
  // bits of the reference, also for few queries and heads.
  std::string fastest(DType dtype, std::int64_t keys, std::int64_t channels, bool reproducible) {
    const auto [entry, is_new] = fastest_.try_emplace({dtype, keys, channels, reproducible});
    if (!is_new) return entry->second;
    const ops::AttentionShape whole{
        .dtype = dtype, .heads = 8, .channels = channels, .queries = keys, .keys = keys};
    std::vector<Measured> measured = measure(whole);
    if (measured.empty()) return {};
    const Measured reference = measured.front();
    std::ranges::sort(measured, {}, [](const Measured& each) { return each.timing.seconds; });
    for (const Measured& each : measured) {
      if (each.timing.seconds >= reference.timing.seconds / min_gain) break;
      if (reproducible && !(each.timing.same_bits && agree(whole, each.choice, reference.choice))) {
        continue;
      }
      log::debug("attention to {} keys of {} channels in {}: {} in {:.3g} ms, {} in {:.3g} ms",
                 keys, channels, name_of(dtype), reference.timing.engine,
                 1e3 * reference.timing.seconds, each.timing.engine, 1e3 * each.timing.seconds);
      return entry->second = each.choice.packed();
    }
    return entry->second = reference.choice.packed();
  }

  // As fused_attention_keeps_bits().
  bool keeps_bits(DType dtype, std::int64_t keys, std::int64_t channels) {
    const auto [entry, is_new] = keeps_bits_.try_emplace({dtype, keys, channels}, true);
    if (!is_new) return entry->second;
    const ops::AttentionShape all{
        .dtype = dtype, .heads = 8, .channels = channels, .queries = keys, .keys = keys};
    const Problem whole = attention_problem(all, 1, 2);
    Problem part = whole;  // with its strides
    part.heads = 3;
    part.queries = keys / 2 + 1;
    const std::optional<Choice>& made = choice(dtype, keys, channels);
    expect(made.has_value(), "fused attention is not available here");
    const std::optional<Plan> of_whole = if_available(whole, *made),
                              of_part = if_available(part, *made);
    if (!of_whole || !of_part) return true;
    Operands operands(device_, all);
    entry->second = operands.part_digest(whole, of_whole->plan, part, all.heads) ==
                    operands.part_digest(part, of_part->plan, part, all.heads);
    if (!entry->second) {
      log::warning_here(
          "attention to {} keys of {} channels in {} uses this program's kernels, because cuDNN "
          "gives a part of the queries and heads other bits than all",
          keys, channels, name_of(dtype));
    }
    return entry->second;
  }

  // Uses this choice of fastest() from now on; empty: the reference.
  void use(DType dtype, std::int64_t keys, std::int64_t channels, const std::string& packed) {
    const std::optional<Choice>& before = choice(dtype, keys, channels);
    if (!before) return;
    const Choice now = packed.empty() ? attention_choices(target_, dtype, keys, channels, 1).front()
                                      : Choice::unpacked(packed);
    if (now == *before) return;
    choices_.at({dtype, keys, channels}) = now;
    std::erase_if(plans_, [&](const auto& each) {
      return each.first.dtype == dtype && each.first.keys == keys &&
             each.first.channels == channels;
    });
  }

 private:
  std::optional<Plan> if_available(const Problem& problem, const Choice& choice) const {
    try {
      return attention_plan(target_, problem, choice);
    } catch (const Error& error) {
      if (error.status() != Status::unavailable) throw;
      return std::nullopt;
    }
  }

  // Whether two choices have the same bits for shares of the queries and heads.
  bool agree(const ops::AttentionShape& whole, const Choice& a, const Choice& b) {
    Operands operands(device_, whole);
    for (const auto& [heads, queries] :
         {std::pair<std::int64_t, std::int64_t>{3, whole.keys / 2 + 1}, {1, min_queries}}) {
      ops::AttentionShape shape = whole;
      shape.heads = heads;
      shape.queries = queries;
      const Problem problem = attention_problem(shape, 1, 2);
      const std::optional<Plan> of_a = if_available(problem, a), of_b = if_available(problem, b);
      if (!of_a || !of_b) return false;
      if (operands.output_digest(problem, of_a->plan) !=
          operands.output_digest(problem, of_b->plan)) {
        return false;
      }
    }
    return true;
  }

  const std::optional<Choice>& choice(DType dtype, std::int64_t keys, std::int64_t channels,
                                      bool with_sums = false) {
    auto& choices = with_sums ? choices_with_sums_ : choices_;
    const auto [entry, is_new] = choices.try_emplace({dtype, keys, channels});
    if (!is_new) return entry->second;
    std::string why = "it proposes none";
    try {
      const std::vector<Choice> found =
          attention_choices(target_, dtype, keys, channels, 1, with_sums);
      if (!found.empty()) entry->second = found.front();
    } catch (const Error& error) {  // not fatal: other kernels are used
      if (error.status() != Status::unavailable) throw;
      why = error.what();
    }
    if (!entry->second) {
      log::warning(
          "attention to {} keys of {} channels in {} on {} uses this program's kernels, because "
          "cuDNN has none: {}",
          keys, channels, name_of(dtype), to_string(device_), why);
    }
    return entry->second;
  }

  Device device_;
  dnn::Target target_;
  std::map<std::tuple<DType, std::int64_t, std::int64_t>, std::optional<Choice>> choices_,
      choices_with_sums_;
  std::map<std::tuple<DType, std::int64_t, std::int64_t>, bool> keeps_bits_;
  std::map<std::tuple<DType, std::int64_t, std::int64_t, bool>, std::string> fastest_;
  std::map<Problem, std::unique_ptr<Plan>> plans_;
};

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
  return library_has_attention() &&
         cuda::device_instance<Attentions>(device).has(dtype, keys, channels);
}

bool has_fused_sums(Device device, DType dtype, std::int64_t keys, std::int64_t channels) {
  return library_has_attention() &&
         cuda::device_instance<Attentions>(device).has(dtype, keys, channels, true);
}

bool fused_attention_keeps_bits(Device device, DType dtype, std::int64_t keys,
                                std::int64_t channels) {
  try {
    return cuda::device_instance<Attentions>(device).keeps_bits(dtype, keys, channels);
  } catch (const Error& error) {
    if (error.status() != Status::unavailable) throw;
    log::debug("attention to {} keys is not compared with its parts: {}", keys, error.what());
    return true;
  }
}

void prepare_fused_attention(Device device, const ops::AttentionShape& shape) {
  ops::AttentionShape padded = shape;
  padded.queries = std::max(padded.queries, min_queries);
  cuda::device_instance<Attentions>(device).plan(attention_problem(padded, 1, 2));
}

std::string fastest_fused_attention(Device device, DType dtype, std::int64_t keys,
                                    std::int64_t channels, bool reproducible) {
  try {
    return cuda::device_instance<Attentions>(device).fastest(dtype, keys, channels, reproducible);
  } catch (const Error& error) {
    if (error.status() != Status::unavailable) throw;
    log::debug("attention to {} keys is not measured: {}", keys, error.what());
    return {};
  }
}

void use_fused_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels,
                         const std::string& choice) {
  cuda::device_instance<Attentions>(device).use(dtype, keys, channels, choice);
}

std::vector<EngineTiming> time_fused_attention(Device device, const ops::AttentionShape& shape) {
  std::vector<EngineTiming> timings;
  for (const auto& measured : cuda::device_instance<Attentions>(device).measure(shape)) {
    timings.push_back(measured.timing);
  }
  return timings;
}

void check_attention_plan(const dnn::Target& target, const ops::AttentionShape& shape,
                          bool with_sums) {
  const std::vector<Choice> found =
      attention_choices(target, shape.dtype, shape.keys, shape.channels, 1, with_sums);
  require(!found.empty(), Status::unavailable,
          "cuDNN has no attention to {} keys of {} channels in {}", shape.keys, shape.channels,
          name_of(shape.dtype));
  Problem problem = attention_problem(shape, 1, 2);
  if (with_sums) problem.sum_stride = shape.heads * shape.queries;
  attention_plan(target, problem, found.front());
}

void fused_attention(const ops::Rows& queries, const ops::Rows& keys, const ops::Rows& values,
                     float scale, Tensor& out, Tensor* sums) {
  const Device device = out.device();
  const std::int64_t batch = out.shape(1), heads = out.shape(2), channels = out.shape(3);
  const std::int64_t sequences = queries.sequences, count = queries.count();
  if (count < min_queries) {
    expect(sequences == 1 && sums == nullptr, "{} sequences of {} queries", sequences, count);
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
  Problem problem = attention_problem(shape, queries.tensor.shape(2), keys.tensor.shape(2));
  const std::int64_t calls = sequences > 1 ? batch : 1, sums_of_item = heads * count;
  if (sums != nullptr) problem.sum_stride = calls * sums_of_item;
  const auto at = [&](const Tensor& tensor, std::int64_t element) {
    return static_cast<const std::byte*>(tensor.address_on(device)) +
           element * size_of(tensor.dtype());
  };
  auto* const first = static_cast<std::byte*>(out.address_on(device));
  for (std::int64_t item = 0; item < calls; ++item) {
    cuda::device_instance<Attentions>(device).run(
        problem, at(queries.tensor, item * query_item + queries.part * row),
        at(keys.tensor, item * key_item + keys.part * row),
        at(values.tensor, item * key_item + values.part * row), scale,
        first + item * row * size_of(out.dtype()),
        sums == nullptr ? nullptr
                        : static_cast<float*>(sums->address_on(device)) + item * sums_of_item);
  }
}

}  // namespace reelmesh::gpu
