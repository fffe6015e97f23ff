// gpu::fused_attention on the emulated GPU, from its description in ops/cuda/fused_attention.hpp.
// On a real GPU cuDNN computes it.
//
//   REELMESH_EMULATED_CUDNN_ATTENTION=0   emulates a cuDNN without fused attention
//   REELMESH_EMULATED_CUDNN_ATTENTION=N   its engine supports at least N heads
//   REELMESH_EMULATED_CUDNN_PARTS=1       parts of a call are said to have other bits
//   REELMESH_EMULATED_CUDNN_FASTEST=1     its second engine, with other bits, is the fastest
#include "ops/cuda/fused_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "emulated_gpu/product.hpp"
#include "emulated_gpu/stream.hpp"
#include "tensor/convert.hpp"
#include "tensor/cuda/handles.hpp"

namespace reelmesh::gpu {
namespace {

// Rows of one part of a tensor [sequence · row, batch, part, head, channel].
struct Part {
  explicit Part(const ops::Rows& rows)
      : at(static_cast<const std::byte*>(rows.tensor.address_on(rows.tensor.device()))),
        shape(rows.tensor.shape()),
        part(rows.part),
        count(rows.count()) {}

  // One head of one batch item, as float32 [row][channel].
  std::vector<float> head(DType dtype, std::int64_t sequence, std::int64_t item,
                          std::int64_t head) const {
    const std::int64_t channels = shape[4];
    std::vector<float> dense(static_cast<std::size_t>(count * channels));
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t row = (sequence * count + r) * shape[1] + item;
      const std::int64_t first = ((row * shape[2] + part) * shape[3] + head) * channels;
      convert(at + first * size_of(dtype), dtype, dense.data() + r * channels, DType::float32,
              channels);
    }
    return dense;
  }

  const std::byte* at;
  Shape shape;
  std::int64_t part, count;
};

// Held by value: a graph may run it again after the tensors are destroyed.
struct Problem {
  DType dtype;
  Part queries, keys, values;
  std::int64_t sequences;
  float scale;
  bool rounds;  ///< weights to the tensors' dtype before they are multiplied with the values
  std::byte* out;
  float* sums;  ///< or null: ln(Σ exp) of [sequence, item, head, query]

  void run() const {
    const Shape& shape = queries.shape;
    for (std::int64_t s = 0; s < sequences; ++s) {
      for (std::int64_t item = 0; item < shape[1]; ++item) {
        for (std::int64_t head = 0; head < shape[3]; ++head) attend(s, item, head);
      }
    }
  }

  void attend(std::int64_t sequence, std::int64_t item, std::int64_t head) const {
    const std::int64_t channels = queries.shape[4], count = keys.count;
    const std::vector<float> q = queries.head(dtype, sequence, item, head);
    const std::vector<float> k = keys.head(dtype, sequence, item, head);
    const std::vector<float> v = values.head(dtype, sequence, item, head);
    emulated::RightOperand of_keys(channels, count), of_values(count, channels);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t c = 0; c < channels; ++c) {
        of_keys.at(c, i) = k[static_cast<std::size_t>(i * channels + c)];
        of_values.at(i, c) = v[static_cast<std::size_t>(i * channels + c)];
      }
    }
    std::vector<float> weights(static_cast<std::size_t>(count)), narrow(weights.size());
    std::vector<float> result(static_cast<std::size_t>(channels));
    std::vector<std::byte> rounded(static_cast<std::size_t>(count * size_of(dtype)));
    for (std::int64_t r = 0; r < queries.count; ++r) {
      of_keys.multiply(q.data() + r * channels, 1, weights.data());
      const float largest = *std::max_element(weights.begin(), weights.end());
      float sum = 0;
      for (float& weight : weights) sum += weight = std::exp((weight - largest) * scale);
      convert(weights.data(), DType::float32, rounded.data(), dtype, count);
      convert(rounded.data(), dtype, narrow.data(), DType::float32, count);
      of_values.multiply(rounds ? narrow.data() : weights.data(), 1, result.data());
      for (float& number : result) number /= sum;
      if (sums != nullptr) {
        const std::int64_t pair = (sequence * queries.shape[1] + item) * queries.shape[3] + head;
        sums[pair * queries.count + r] = largest * scale + std::log(sum);
      }
      const std::int64_t row = (sequence * queries.count + r) * queries.shape[1] + item;
      const std::int64_t first = (row * queries.shape[3] + head) * channels;
      convert(result.data(), DType::float32, out + first * size_of(dtype), dtype, channels);
    }
  }
};

std::int64_t min_heads() {
  const char* text = std::getenv("REELMESH_EMULATED_CUDNN_ATTENTION");
  return text == nullptr ? 1 : std::atoi(text);
}

// Whether the second engine is used.
bool& second_engine() {
  static bool used = false;
  return used;
}

}  // namespace

const std::string& why_no_fused_attention() {
  static const std::string why = min_heads() > 0 ? "" : "this emulated cuDNN has none";
  return why;
}

bool has_fused_attention(Device /*device*/, DType /*dtype*/, std::int64_t /*keys*/,
                         std::int64_t /*channels*/) {
  return min_heads() > 0;
}

bool has_fused_sums(Device device, DType dtype, std::int64_t keys, std::int64_t channels) {
  return has_fused_attention(device, dtype, keys, channels);
}

bool fused_attention_keeps_bits(Device /*device*/, DType /*dtype*/, std::int64_t /*keys*/,
                                std::int64_t /*channels*/) {
  return std::getenv("REELMESH_EMULATED_CUDNN_PARTS") == nullptr;
}

std::string fastest_fused_attention(Device /*device*/, DType /*dtype*/, std::int64_t /*keys*/,
                                    std::int64_t /*channels*/, bool /*reproducible*/) {
  const char* text = std::getenv("REELMESH_EMULATED_CUDNN_FASTEST");
  return text == nullptr ? "0" : text;
}

void use_fused_attention(Device /*device*/, DType /*dtype*/, std::int64_t /*keys*/,
                         std::int64_t /*channels*/, const std::string& choice) {
  second_engine() = choice == "1";
}

std::vector<EngineTiming> time_fused_attention(Device device, const ops::AttentionShape& shape) {
  const auto& [dtype, sequences, batch, heads, channels, queries, keys] = shape;
  const Tensor of_queries = Tensor::zeros({queries, batch, 1, heads, channels}, dtype, device);
  const Tensor of_keys = Tensor::zeros({keys, batch, 2, heads, channels}, dtype, device);
  Tensor out = Tensor::empty({queries, batch, heads, channels}, dtype, device);
  const auto attend = [&] {
    fused_attention({of_queries, 0}, {of_keys, 0}, {of_keys, 1}, 1.0F, out);
  };
  return {{"emulated engine", measure_seconds(device, {attend}).front(), true}};
}

void prepare_fused_attention(Device /*device*/, const ops::AttentionShape& shape) {
  require(shape.heads >= min_heads(), Status::unavailable,
          "cuDNN's attention engine does not support {} heads", shape.heads);
}

void fused_attention(const ops::Rows& queries, const ops::Rows& keys, const ops::Rows& values,
                     float scale, Tensor& out, Tensor* sums) {
  const Device device = out.device();
  expect(keys.count() > 0 && !out.empty(), "fused attention of nothing");
  trace::recorder().kernels.insert("attention: emulated cuDNN");
  const Problem problem{
      .dtype = out.dtype(),
      .queries = Part(queries),
      .keys = Part(keys),
      .values = Part(values),
      .sequences = queries.sequences,
      .scale = scale,
      .rounds = !second_engine(),
      .out = static_cast<std::byte*>(out.address_on(device)),
      .sums = sums == nullptr ? nullptr : static_cast<float*>(sums->address_on(device))};
  cuda::check(
      emulated::enqueue(cuda::stream(device), {"fused attention", [problem] { problem.run(); }}),
      "fused attention");
}

}  // namespace reelmesh::gpu
