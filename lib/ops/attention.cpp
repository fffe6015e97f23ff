#include "ops/attention.hpp"

#include "base/trace.hpp"
#include "ops/attention_work.hpp"
#include "ops/cuda/fused_attention.hpp"
#include "ops/cuda/ops.hpp"
#include "ops/operation.hpp"

namespace reelmesh::ops {
namespace {

std::unique_ptr<Attention::Work> work_on(const Rows& queries, float scale, const Tensor& bias,
                                         const Numerics& numerics) {
  expect(scale > 0, "attention with a scale of {}", scale);
  if (queries.tensor.device().only_shapes) return attention_of_shapes(queries);
  if constexpr (cuda_built) {
    if (queries.tensor.device().is_cuda()) {
      trace::recorder().kernels.insert(bias.empty() ? "attention: own kernels"
                                                    : "attention with bias: own kernels");
      return gpu::attention_work(queries, scale, bias, numerics);
    }
  }
  return cpu_attention_work(queries, scale, bias);
}

bool divides(std::int64_t sequences, std::int64_t rows) {
  return sequences > 0 ? rows % sequences == 0 : sequences == 0 && rows == 0;
}

// Queries [sequence · query, batch, head, channel] as Rows with a single part.
Rows queries_in(const Tensor& queries, std::int64_t sequences) {
  expect(queries.shape().size() == 4 && divides(sequences, queries.shape(0)),
         "attention of {} in {} sequences", queries.shape(), sequences);
  Shape shape = queries.shape();
  shape.insert(shape.begin() + 2, 1);
  return {queries.reshape(std::move(shape)), 0, sequences};
}

// Keys (part 0) or values (part 1).
Rows part_rows(const Tensor& keys_values, std::int64_t part, std::int64_t sequences) {
  const Shape& shape = keys_values.shape();
  expect(shape.size() == 5 && shape[2] == 2 && divides(sequences, shape[0]),
         "attention to {} in {} sequences", shape, sequences);
  return {keys_values, part, sequences};
}

// Elements of a part.
std::int64_t elements(const Rows& rows) {
  const Shape& shape = rows.tensor.shape();
  return rows.tensor.empty() ? 0 : rows.tensor.numel() / shape[2];
}

// Of scores and their products with values, for queries of `queries` elements; the result is not
// counted in bytes.
Work score_work(std::int64_t queries, const Rows& keys) {
  return {4 * queries * keys.count(),
          (queries + 2 * elements(keys)) * size_of(keys.tensor.dtype())};
}

Tensor attend_rows(const Rows& queries, const Rows& keys, const Rows& values, float scale,
                   const Tensor& bias, const Numerics& numerics) {
  const std::int64_t elements_of_queries = elements(queries);
  Work work = score_work(elements_of_queries, keys);
  work.bytes += elements_of_queries * size_of(queries.tensor.dtype()) + bias.bytes();
  const Operation operation(trace::spans::attention, work);
  const Tensor& q = queries.tensor;
  if (bias.empty() &&
      uses_fused_attention(q.device(), q.dtype(), keys.count(), q.shape().back(), numerics)) {
    const Shape& shape = q.shape();
    Tensor out = Tensor::empty({shape[0], shape[1], shape[3], shape[4]}, q.dtype(), q.device());
    if (out.empty() || q.device().only_shapes) return out;
    if constexpr (cuda_built) gpu::fused_attention(queries, keys, values, scale, out);
    return out;
  }
  return work_on(queries, scale, bias, numerics)->attend(keys, values);
}

}  // namespace

Attention::Attention(const Tensor& queries, float scale, std::int64_t sequences,
                     const Numerics& numerics)
    : sequences_(sequences), elements_(queries.numel()), dtype_(queries.dtype()) {
  work_ = work_on(queries_in(queries, sequences), scale, {}, numerics);
}

Attention::~Attention() = default;

void Attention::add(const Tensor& keys_values) {
  const Rows keys = part_rows(keys_values, 0, sequences_);
  const Operation operation(trace::spans::attention, score_work(elements_, keys));
  work_->add(keys, part_rows(keys_values, 1, sequences_));
}

Tensor Attention::finish() {
  const Operation operation(trace::spans::attention, {0, elements_ * size_of(dtype_)});
  return work_->finish();
}

bool may_use_fused_attention(DType dtype, std::int64_t keys, std::int64_t channels) {
  return size_of(dtype) == 2 && keys >= Attention::block_keys && channels % 8 == 0 &&
         channels <= 128;
}

bool uses_fused_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels,
                          const Numerics& numerics) {
  if (!device.is_cuda() || numerics.own_attention ||
      !may_use_fused_attention(dtype, keys, channels)) {
    return false;
  }
  if (device.only_shapes) return true;
  if constexpr (cuda_built) {
    return gpu::has_fused_attention(device, dtype, keys, channels) &&
           (!numerics.reproducible ||
            gpu::fused_attention_keeps_bits(device, dtype, keys, channels));
  }
  return false;
}

std::string attention_on_gpus() {
  if constexpr (cuda_built) {
    const std::string& why = gpu::why_no_fused_attention();
    return why.empty() ? fmt::format(
                             "cuDNN for 16-bit types and at least {} keys, otherwise own "
                             "kernels",
                             Attention::block_keys)
                       : "own kernels: " + why;
  }
  return {};
}

std::string fastest_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels,
                              const Numerics& numerics) {
  if constexpr (cuda_built) {
    if (uses_fused_attention(device, dtype, keys, channels, numerics)) {
      return gpu::fastest_fused_attention(device, dtype, keys, channels, numerics.reproducible);
    }
  }
  return {};
}

void use_attention(Device device, DType dtype, std::int64_t keys, std::int64_t channels,
                   const Numerics& numerics, const std::string& choice) {
  if constexpr (cuda_built) {
    if (uses_fused_attention(device, dtype, keys, channels, numerics)) {
      gpu::use_fused_attention(device, dtype, keys, channels, choice);
    }
  }
}

void prepare_attend(Device device, const AttentionShape& shape, const Numerics& numerics) {
  if (device.only_shapes) return;
  if constexpr (cuda_built) {
    if (shape.sequences * shape.batch * shape.heads * shape.queries == 0) return;
    if (!uses_fused_attention(device, shape.dtype, shape.keys, shape.channels, numerics)) return;
    gpu::prepare_fused_attention(device, shape);
  }
}

Tensor attend(const Tensor& queries, const Tensor& keys_values, float scale, std::int64_t sequences,
              const Numerics& numerics) {
  return attend_rows(queries_in(queries, sequences), part_rows(keys_values, 0, sequences),
                     part_rows(keys_values, 1, sequences), scale, {}, numerics);
}

Tensor attention(const Tensor& qkv, float scale, const Tensor& bias, const Numerics& numerics) {
  expect(qkv.shape().size() == 5 && qkv.shape(2) == 3, "attention of {}", qkv.shape());
  const std::int64_t tokens = qkv.shape(0), heads = qkv.shape(3);
  expect(bias.empty() || bias.shape() == Shape{heads, tokens, tokens},
         "attention of {} with a bias {}", qkv.shape(), bias.shape());
  return attend_rows({qkv, 0}, {qkv, 1}, {qkv, 2}, scale, bias, numerics);
}

}  // namespace reelmesh::ops
