#include "ops/attention.hpp"

#include <algorithm>
#include <limits>

#include "base/trace.hpp"
#include "ops/math.hpp"
#include "ops/onednn.hpp"
#include "ops/parallel.hpp"

namespace reelmesh::ops {
namespace {

constexpr std::int64_t tile_rows = 64;    // queries of one task
constexpr std::int64_t block_keys = 512;  // keys of one block
constexpr std::int64_t lanes = 16;        // partial sums of a row, in a fixed order

// One row of one block: scores → weights exp(score − largest) in place. Returns the factor for what
// was summed up before; updates the row's largest score and sum.
REELMESH_CLONES float softmax_block(float* scores, std::int64_t keys, float scale,
                                    const float* bias, float& largest, float& sum) {
  float most[lanes];
  std::fill_n(most, lanes, -std::numeric_limits<float>::infinity());
  const std::int64_t even = keys / lanes * lanes;
  if (bias != nullptr) {
    for (std::int64_t k = 0; k < keys; ++k) scores[k] = scores[k] * scale + bias[k];
  } else {
    for (std::int64_t k = 0; k < keys; ++k) scores[k] = scores[k] * scale;
  }
  for (std::int64_t k = 0; k < even; k += lanes) {
    for (std::int64_t i = 0; i < lanes; ++i) {
      most[i] = scores[k + i] > most[i] ? scores[k + i] : most[i];
    }
  }
  float top = largest;
  for (std::int64_t i = 0; i < lanes; ++i) top = std::max(top, most[i]);
  for (std::int64_t k = even; k < keys; ++k) top = std::max(top, scores[k]);

  float partial[lanes] = {};
  for (std::int64_t k = 0; k < even; k += lanes) {
    for (std::int64_t i = 0; i < lanes; ++i) {
      const float weight = exp_approx(scores[k + i] - top);
      scores[k + i] = weight;
      partial[i] += weight;
    }
  }
  float block = 0;
  for (std::int64_t i = 0; i < lanes; ++i) block += partial[i];
  for (std::int64_t k = even; k < keys; ++k) {
    scores[k] = exp_approx(scores[k] - top);
    block += scores[k];
  }
  const float factor = exp_approx(largest - top);
  sum = sum * factor + block;
  largest = top;
  return factor;
}

REELMESH_CLONES void accumulate(float* total, const float* block, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) total[i] = total[i] * factor + block[i];
}

// Tokens [first, first + count) of one head as a dense block of the compute type.
template <class From, class Into>
void gather_rows(const From* from, std::int64_t stride, std::int64_t count, std::int64_t channels,
                 Into* into) {
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      into[r * channels + c] = Into(static_cast<float>(from[r * stride + c]));
    }
  }
}

// One attention of a fixed geometry. T: type of the tensors, C: type of the products.
template <class T, class C>
class Streamed {
 public:
  Streamed(const Tensor& qkv, float scale, const Tensor& bias)
      : tokens_(qkv.shape(0)),
        batch_(qkv.shape(1)),
        heads_(qkv.shape(3)),
        channels_(qkv.shape(4)),
        stride_(batch_ * 3 * heads_ * channels_),
        scale_(scale),
        qkv_(qkv.data<T>()),
        bias_(bias.empty() ? nullptr : bias.data<float>()),
        blocks_((tokens_ + block_keys - 1) / block_keys) {
    const std::int64_t last = tokens_ - (blocks_ - 1) * block_keys;
    scores_ = TileProduct(tile_rows, std::min(block_keys, tokens_), channels_, dtype_of<C>());
    values_ = TileProduct(tile_rows, channels_, std::min(block_keys, tokens_), dtype_of<C>());
    last_scores_ = TileProduct(tile_rows, last, channels_, dtype_of<C>());
    last_values_ = TileProduct(tile_rows, channels_, last, dtype_of<C>());
    key_bytes_ = std::max(scores_.packed_bytes(), last_scores_.packed_bytes());
    value_bytes_ = std::max(values_.packed_bytes(), last_values_.packed_bytes());
  }

  Tensor run() {
    pack();
    Tensor out = Tensor::empty({tokens_, batch_, heads_, channels_}, dtype_of<T>());
    const std::int64_t row_tiles = (tokens_ + tile_rows - 1) / tile_rows;
    parallel_for(batch_ * heads_ * row_tiles, 1, [&](std::int64_t task) {
      rows(task / row_tiles, task % row_tiles * tile_rows, out.data<T>());
    });
    return out;
  }

 private:
  // q, k or v (part 0, 1, 2) of a pair = batch item · heads + head, from this token on.
  const T* part(std::int64_t pair, int which, std::int64_t token) const {
    return qkv_ + token * stride_ +
           ((pair / heads_ * 3 + which) * heads_ + pair % heads_) * channels_;
  }
  std::int64_t keys_of(std::int64_t block) const {
    return std::min(block_keys, tokens_ - block * block_keys);
  }
  std::uint8_t* packed(std::int64_t pair, std::int64_t block) const {
    return packed_.data<std::uint8_t>() +
           (pair * blocks_ + block) * static_cast<std::int64_t>(key_bytes_ + value_bytes_);
  }

  void pack() {
    packed_ = Tensor::empty(
        {batch_ * heads_ * blocks_ * static_cast<std::int64_t>(key_bytes_ + value_bytes_)},
        DType::uint8);
    parallel_for(batch_ * heads_ * blocks_, 1, [&](std::int64_t task) {
      const std::int64_t pair = task / blocks_;
      const std::int64_t block = task % blocks_;
      const std::int64_t keys = keys_of(block);
      auto* dense = static_cast<C*>(
          thread_scratch(0, static_cast<std::size_t>(block_keys * channels_) * sizeof(C)));
      const bool last = block == blocks_ - 1;
      gather_rows(part(pair, 1, block * block_keys), stride_, keys, channels_, dense);
      (last ? last_scores_ : scores_).pack(dense, true, channels_, packed(pair, block));
      gather_rows(part(pair, 2, block * block_keys), stride_, keys, channels_, dense);
      (last ? last_values_ : values_)
          .pack(dense, false, channels_, packed(pair, block) + key_bytes_);
    });
  }

  void rows(std::int64_t pair, std::int64_t first, T* out) const {
    const std::int64_t count = std::min(tile_rows, tokens_ - first);
    auto* query = static_cast<C*>(
        thread_scratch(0, static_cast<std::size_t>(tile_rows * channels_) * sizeof(C)));
    auto* scores = static_cast<float*>(
        thread_scratch(1, static_cast<std::size_t>(tile_rows * block_keys) * sizeof(float)));
    auto* weights = static_cast<C*>(
        thread_scratch(2, static_cast<std::size_t>(tile_rows * block_keys) * sizeof(C)));
    auto* block_out = static_cast<float*>(
        thread_scratch(3, static_cast<std::size_t>(2 * tile_rows * channels_) * sizeof(float)));
    float* total = block_out + tile_rows * channels_;
    std::fill_n(query, tile_rows * channels_, C(0.0F));
    gather_rows(part(pair, 0, first), stride_, count, channels_, query);
    std::fill_n(total, tile_rows * channels_, 0.0F);
    float largest[tile_rows], sum[tile_rows] = {}, factor[tile_rows];
    std::fill_n(largest, tile_rows, -std::numeric_limits<float>::infinity());

    for (std::int64_t block = 0; block < blocks_; ++block) {
      const bool last = block == blocks_ - 1;
      const std::int64_t keys = keys_of(block);
      (last ? last_scores_ : scores_).run(query, packed(pair, block), scores);
      for (std::int64_t r = 0; r < tile_rows; ++r) {
        const float* bias =
            bias_ == nullptr || r >= count
                ? nullptr
                : bias_ + (pair % heads_ * tokens_ + first + r) * tokens_ + block * block_keys;
        factor[r] = softmax_block(scores + r * keys, keys, scale_, bias, largest[r], sum[r]);
      }
      for (std::int64_t i = 0; i < tile_rows * keys; ++i) weights[i] = C(scores[i]);
      (last ? last_values_ : values_).run(weights, packed(pair, block) + key_bytes_, block_out);
      for (std::int64_t r = 0; r < count; ++r) {
        accumulate(total + r * channels_, block_out + r * channels_, channels_, factor[r]);
      }
    }
    for (std::int64_t r = 0; r < count; ++r) {
      T* y = out + (((first + r) * batch_ + pair / heads_) * heads_ + pair % heads_) * channels_;
      for (std::int64_t c = 0; c < channels_; ++c) y[c] = T(total[r * channels_ + c] / sum[r]);
    }
  }

  std::int64_t tokens_, batch_, heads_, channels_, stride_;
  float scale_;
  const T* qkv_;
  const float* bias_;
  std::int64_t blocks_;
  TileProduct scores_, values_, last_scores_, last_values_;
  std::size_t key_bytes_ = 0, value_bytes_ = 0;
  Tensor packed_;
};

}  // namespace

Tensor attention(const Tensor& qkv, float scale, const Tensor& bias) {
  expect(qkv.shape().size() == 5 && qkv.shape(2) == 3, "attention of {}", to_string(qkv.shape()));
  const std::int64_t tokens = qkv.shape(0), heads = qkv.shape(3);
  expect(bias.empty() || bias.shape() == Shape{heads, tokens, tokens},
         "attention of {} with a bias {}", to_string(qkv.shape()), to_string(bias.shape()));
  if (qkv.empty()) return Tensor::empty({tokens, qkv.shape(1), heads, qkv.shape(4)}, qkv.dtype());
  trace::recorder().flops += 4 * qkv.shape(1) * heads * tokens * tokens * qkv.shape(4);
  return visit_float(qkv.dtype(), [&](auto type) {
    using T = decltype(type);
    if (compute_dtype(qkv.dtype()) == DType::bfloat16) {
      return Streamed<T, BFloat16>(qkv, scale, bias).run();
    }
    return Streamed<T, float>(qkv, scale, bias).run();
  });
}

}  // namespace reelmesh::ops
