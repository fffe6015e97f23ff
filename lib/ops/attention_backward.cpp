#include "ops/attention_backward.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/attention_work.hpp"
#include "ops/cuda/fused_attention.hpp"
#include "ops/cuda/ops.hpp"
#include "ops/math.hpp"
#include "ops/onednn.hpp"
#include "ops/operation.hpp"
#include "ops/packing.hpp"
#include "ops/parallel.hpp"
#include "ops/pointwise.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh::ops {
namespace {

constexpr std::int64_t block_keys = Attention::block_keys;
constexpr std::int64_t tile_queries = 128;
constexpr std::int64_t padding = 32;  // rows of the last block and tile: a multiple of this
constexpr std::int64_t lanes = 16;    // partial sums of a row, added in a fixed order
constexpr float log2_e = 1.44269504088896341F;

std::int64_t padded(std::int64_t rows) { return (rows + padding - 1) / padding * padding; }
std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

// Σ x·y.
REELMESH_CLONES float dot(const float* x, const float* y, std::int64_t n) {
  float partial[lanes] = {};
  const std::int64_t even = n / lanes * lanes;
  for (std::int64_t c = 0; c < even; c += lanes) {
    for (std::int64_t i = 0; i < lanes; ++i) {
      partial[i] = std::fma(x[c + i], y[c + i], partial[i]);
    }
  }
  float sum = 0;
  for (std::int64_t i = 0; i < lanes; ++i) sum += partial[i];
  for (std::int64_t c = even; c < n; ++c) sum = std::fma(x[c], y[c], sum);
  return sum;
}

// For one key and `n` queries. weights: q·k, overwritten with 2^(unit·q·k − log_sum_exp), the
// weights of the key; gradients: Σ d_out·v, overwritten with weight·(Σ d_out·v − delta), the
// gradients of scale·q·k.
REELMESH_CLONES void weigh(float* __restrict weights, float* __restrict gradients, std::int64_t n,
                           float unit, const float* __restrict log_sum_exp,
                           const float* __restrict delta) {
  for (std::int64_t q = 0; q < n; ++q) {
    const float weight = exp2_approx(std::fma(weights[q], unit, -log_sum_exp[q]));
    weights[q] = weight;
    gradients[q] = weight * (gradients[q] - delta[q]);
  }
}

// C: input type of the GEMMs, T: type of the tensors.
//
// The GEMMs compute scores as [key, query], so that the weights of keys and the gradients of scores
// are rows of the left operand where they are summed over queries, and of the right operand where
// they are summed over keys; nothing is transposed for every block and tile. Of a pair, the
// operands of all tiles of queries are packed first; then each block of keys stays in the core's
// cache while it meets all tiles.
template <class T, class C>
class Backward {
 public:
  Backward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForward& forward,
           const Tensor& d_out, float scale, std::int64_t sequences, AttentionGradients& gradients)
      : q_(q.data<T>()),
        k_(k.data<T>()),
        v_(v.data<T>()),
        out_(forward.out.data<T>()),
        d_out_(d_out.data<T>()),
        log_sum_exp_(forward.log_sum_exp.data<float>()),
        d_q_(gradients.q.data<T>()),
        d_k_(gradients.k.data<T>()),
        d_v_(gradients.v.data<T>()),
        scale_(scale),
        sequences_(sequences),
        queries_(q.shape(0) / sequences),
        keys_(k.shape(0) / sequences),
        heads_(q.shape(1) * q.shape(2)),
        channels_(q.shape(3)),
        tiles_(divide_up(queries_, tile_queries)),
        blocks_(divide_up(keys_, block_keys)) {
    for (std::int64_t block : {std::int64_t{0}, blocks_ - 1}) {
      for (std::int64_t tile : {std::int64_t{0}, tiles_ - 1}) {
        const std::int64_t keys = padded(keys_of(block)), queries = padded(queries_of(tile));
        products_[block == blocks_ - 1][tile == tiles_ - 1] = {
            TileProduct(keys, queries, channels_, dtype_of<C>()),
            TileProduct(keys, channels_, queries, dtype_of<C>(), {.adds = true}),
            TileProduct(channels_, queries, keys, dtype_of<C>(),
                        {.adds = true, .dense_weights = true})};
      }
    }
    for (std::int64_t tile : {std::int64_t{0}, tiles_ - 1}) {
      const Products& products = of(0, tile);
      expect(products.scores.packs_as(of(blocks_ - 1, tile).scores) &&
                 products.sums.packs_as(of(blocks_ - 1, tile).sums),
             "packed layouts depend on the number of keys");
      packing_[tile == tiles_ - 1] = {products.scores.packing(true, channels_),
                                      products.sums.packing(false, channels_)};
      packed_ =
          std::max({packed_, products.scores.packed_elements(), products.sums.packed_elements()});
    }
  }

  // A pair, a sequence and one of its batch items and heads, is one task: with fewer pairs than
  // threads some threads idle.
  void run() {
    parallel_for(sequences_ * heads_, 1, [&](std::int64_t pair) { run_pair(pair); });
  }

 private:
  // GEMMs for a block of keys and a tile of queries.
  struct Products {
    TileProduct scores;      // [key, query]: keys·queriesᵀ, values·d_outᵀ
    TileProduct sums;        // [key, channel]: sums over queries
    TileProduct query_sums;  // [channel, query]: sums over keys
  };
  // Reorders of the rows of a tile of queries.
  struct Packing {
    Primitive transposed, plain;
  };
  // A tile of queries.
  struct Tile {
    C *q_transposed, *d_out_transposed, *q, *d_out;  // packed
    float *log_sum_exp, *delta;                      // [query]; delta: Σ d_out·out
    float* d_q;                                      // [channel, query]
  };

  std::int64_t keys_of(std::int64_t block) const {
    return std::min(block_keys, keys_ - block * block_keys);
  }
  std::int64_t queries_of(std::int64_t tile) const {
    return std::min(tile_queries, queries_ - tile * tile_queries);
  }
  const Products& of(std::int64_t block, std::int64_t tile) const {
    return products_[block == blocks_ - 1][tile == tiles_ - 1];
  }
  // Of a token of the pair's sequence, of which a tensor has `count`.
  std::int64_t offset(std::int64_t token, std::int64_t pair, std::int64_t count) const {
    return ((pair / heads_ * count + token) * heads_ + pair % heads_) * channels_;
  }
  std::int64_t query_offset(std::int64_t token, std::int64_t pair) const {
    return offset(token, pair, queries_);
  }
  std::int64_t key_offset(std::int64_t token, std::int64_t pair) const {
    return offset(token, pair, keys_);
  }
  std::int64_t stride() const { return heads_ * channels_; }

  template <class Element>
  static Element* scratch(std::size_t slot, std::int64_t count) {
    return static_cast<Element*>(
        thread_scratch(slot, static_cast<std::size_t>(count) * sizeof(Element)));
  }

  // Rows of a tensor, and zeros up to `rows`.
  void load(const T* from, std::int64_t count, std::int64_t rows, C* into) const {
    gather_rows(from, stride(), count, channels_, into);
    std::fill_n(into + count * channels_, (rows - count) * channels_, C(0.0F));
  }

  Tile tile_at(std::int64_t tile) const {
    C* packed = scratch<C>(4, tiles_ * 4 * packed_) + tile * 4 * packed_;
    const std::int64_t floats = (channels_ + 2) * tile_queries;
    float* sums = scratch<float>(5, tiles_ * floats) + tile * floats;
    return {packed, packed + packed_,    packed + 2 * packed_,   packed + 3 * packed_,
            sums,   sums + tile_queries, sums + 2 * tile_queries};
  }

  void prepare_tile(std::int64_t pair, std::int64_t tile) const {
    const Tile own = tile_at(tile);
    const std::int64_t first = tile * tile_queries, count = queries_of(tile), rows = padded(count);
    const Packing& packing = packing_[tile == tiles_ - 1];
    C* dense = scratch<C>(0, tile_queries * channels_);
    load(q_ + query_offset(first, pair), count, rows, dense);
    packing.transposed.run({dense, own.q_transposed});
    packing.plain.run({dense, own.q});
    load(d_out_ + query_offset(first, pair), count, rows, dense);
    packing.transposed.run({dense, own.d_out_transposed});
    packing.plain.run({dense, own.d_out});

    // Queries of padding have zeros as d_out, so they add nothing.
    std::fill_n(own.log_sum_exp, rows, 0.0F);
    std::fill_n(own.delta, rows, 0.0F);
    std::copy_n(log_sum_exp_ + pair * queries_ + first, count, own.log_sum_exp);
    float* x = scratch<float>(6, 2 * channels_);
    float* y = x + channels_;
    for (std::int64_t r = 0; r < count; ++r) {
      convert(d_out_ + query_offset(first + r, pair), x, channels_);
      convert(out_ + query_offset(first + r, pair), y, channels_);
      own.delta[r] = dot(x, y, channels_);
    }
    std::fill_n(own.d_q, channels_ * rows, 0.0F);
  }

  void run_pair(std::int64_t pair) const {
    for (std::int64_t tile = 0; tile < tiles_; ++tile) prepare_tile(pair, tile);
    for (std::int64_t block = 0; block < blocks_; ++block) {
      run_block(pair, block);
      background();
    }
    float* row = scratch<float>(6, channels_);
    for (std::int64_t tile = 0; tile < tiles_; ++tile) {
      const float* d_q = tile_at(tile).d_q;
      const std::int64_t count = queries_of(tile), rows = padded(count);
      for (std::int64_t r = 0; r < count; ++r) {
        for (std::int64_t c = 0; c < channels_; ++c) row[c] = scale_ * d_q[c * rows + r];
        convert(row, d_q_ + query_offset(tile * tile_queries + r, pair), channels_);
      }
    }
  }

  // Adds a block of keys to the gradients of all queries; computes those of its keys and values.
  void run_block(std::int64_t pair, std::int64_t block) const {
    const std::int64_t first = block * block_keys, count = keys_of(block), rows = padded(count);
    const std::int64_t elements = block_keys * channels_;
    C* keys = scratch<C>(2, 3 * elements);
    C* keys_transposed = keys + elements;
    C* values = keys_transposed + elements;
    load(k_ + key_offset(first, pair), count, rows, keys);
    load(v_ + key_offset(first, pair), count, rows, values);
    for (std::int64_t c = 0; c < channels_; ++c) {
      for (std::int64_t r = 0; r < rows; ++r)
        keys_transposed[c * rows + r] = keys[r * channels_ + c];
    }
    float* d_k = scratch<float>(3, 2 * elements);
    float* d_v = d_k + elements;
    std::fill_n(d_k, 2 * elements, 0.0F);

    for (std::int64_t tile = 0; tile < tiles_; ++tile) {
      const Tile own = tile_at(tile);
      const Products& products = of(block, tile);
      const std::int64_t queries = padded(queries_of(tile)), scores = block_keys * tile_queries;
      float* weights = scratch<float>(1, 2 * scores + (std::is_same_v<C, float> ? 0 : scores));
      float* gradients = weights + scores;
      products.scores.run(keys, own.q_transposed, weights);
      products.scores.run(values, own.d_out_transposed, gradients);
      C *left, *right;  // the two as inputs of GEMMs
      if constexpr (std::is_same_v<C, float>) {
        left = weights;
        right = gradients;
      } else {
        left = reinterpret_cast<C*>(weights + 2 * scores);
        right = left + scores;
      }
      for (std::int64_t r = 0; r < count; ++r) {
        const std::int64_t at = r * queries;
        weigh(weights + at, gradients + at, queries, scale_ * log2_e, own.log_sum_exp, own.delta);
        if constexpr (!std::is_same_v<C, float>) {
          convert(weights + at, left + at, queries);
          convert(gradients + at, right + at, queries);
        }
      }
      // Keys of padding have no weight.
      std::fill_n(left + count * queries, (rows - count) * queries, C(0.0F));
      std::fill_n(right + count * queries, (rows - count) * queries, C(0.0F));
      products.sums.run(left, own.d_out, d_v);
      products.sums.run(right, own.q, d_k);
      products.query_sums.run(keys_transposed, right, own.d_q);
    }
    for (std::int64_t i = 0; i < count * channels_; ++i) d_k[i] *= scale_;
    for (std::int64_t r = 0; r < count; ++r) {
      convert(d_k + r * channels_, d_k_ + key_offset(first + r, pair), channels_);
      convert(d_v + r * channels_, d_v_ + key_offset(first + r, pair), channels_);
    }
  }

  const T *q_, *k_, *v_, *out_, *d_out_;
  const float* log_sum_exp_;
  T *d_q_, *d_k_, *d_v_;
  float scale_;
  std::int64_t sequences_, queries_, keys_;  // the last two of a sequence
  std::int64_t heads_, channels_;            // heads of all batch items
  std::int64_t tiles_, blocks_;              // of queries, of keys
  std::int64_t packed_ = 0;                  // elements of a packed matrix of a tile
  Products products_[2][2];  // for a block or the last one, and a tile or the last one
  Packing packing_[2];
};

// What the implementation for the device takes: on a CPU buffers of a thread, as in Backward.
void note_buffers(const Tensor& q, std::int64_t sequences) {
  if (q.device().is_cuda()) {
    Tensor::empty({q.shape(0), q.shape(1) * q.shape(2)}, DType::float32, q.device());
    return;
  }
  Ledger& ledger = Ledger::current();
  const Precision& precision = ledger.precision();
  const DType products = precision.products_of(q.dtype());
  const std::int64_t tokens = q.shape(0) / sequences, channels = q.shape(3),
                     value = size_of(products);
  const std::int64_t rows = std::min(tile_queries, padded(tokens));
  const std::int64_t packed =
      std::max(packed_matrix_bytes(channels, rows, products, precision.packed_for),
               packed_matrix_bytes(rows, channels, products, precision.packed_for));
  const std::int64_t tiles = divide_up(tokens, tile_queries), floats = size_of(DType::float32);
  const bool narrow = products != DType::float32;
  ledger.note_scratch(0, tile_queries * channels * value);
  ledger.note_scratch(1, (narrow ? 3 : 2) * block_keys * tile_queries * floats);
  ledger.note_scratch(2, 3 * block_keys * channels * value);
  ledger.note_scratch(3, 2 * block_keys * channels * floats);
  ledger.note_scratch(4, tiles * 4 * packed);
  ledger.note_scratch(5, tiles * (channels + 2) * tile_queries * floats);
  ledger.note_scratch(6, 2 * channels * floats);
}

void on_cpu(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForward& forward,
            const Tensor& d_out, float scale, std::int64_t sequences,
            AttentionGradients& gradients) {
  visit_float(q.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (compute_dtype(q.dtype()) == DType::bfloat16) {
        Backward<T, BFloat16>(q, k, v, forward, d_out, scale, sequences, gradients).run();
        return;
      }
    }
    Backward<T, float>(q, k, v, forward, d_out, scale, sequences, gradients).run();
  });
}

Rows as_rows(const Tensor& x, std::int64_t sequences) {
  const Shape& s = x.shape();
  return {x.reshape({s[0], s[1], 1, s[2], s[3]}), 0, sequences};
}

// same_tokens: whether there are as many of them as queries.
void check(const Tensor& q, const Tensor& other, std::int64_t sequences, bool same_tokens,
           const char* name) {
  Shape expected = q.shape();
  if (!same_tokens && other.shape().size() == 4) expected[0] = other.shape(0);
  expect(q.shape().size() == 4 && other.shape() == expected && other.dtype() == q.dtype() &&
             sequences > 0 && q.shape(0) % sequences == 0 && other.shape(0) % sequences == 0,
         "attention of {} {} with {} of {} {}, in {} sequences", name_of(q.dtype()), q.shape(),
         name, name_of(other.dtype()), other.shape(), sequences);
}

void check_keys(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t sequences) {
  check(q, k, sequences, false, "keys");
  check(k, v, sequences, true, "values");
  require(!q.device().is_cuda() || q.shape(3) <= 128, Status::unavailable,
          "training on a GPU with heads of {} channels, expected at most 128", q.shape(3));
}

// Whether cuDNN attends and keeps the logarithms of sums: with as many queries as keys, so that
// there are not too few of them for its engine.
bool fuses(const Rows& queries, const Rows& keys, const Numerics& numerics) {
  const Tensor& q = queries.tensor;
  const std::int64_t count = keys.count(), channels = q.shape().back();
  if (queries.count() != count ||
      !uses_fused_attention(q.device(), q.dtype(), count, channels, numerics)) {
    return false;
  }
  if (q.device().only_shapes) return true;
  if constexpr (cuda_built) return gpu::has_fused_sums(q.device(), q.dtype(), count, channels);
  return false;
}

AttentionForward attention_fused(const Rows& queries, const Rows& keys, const Rows& values,
                                 float scale, const Shape& sums) {
  const Tensor& q = queries.tensor;
  const Shape& s = q.shape();
  AttentionForward forward{Tensor::empty({s[0], s[1], s[3], s[4]}, q.dtype(), q.device()), {}};
  Tensor natural = Tensor::empty(sums, DType::float32, q.device());
  if constexpr (cuda_built) {
    if (!q.device().only_shapes && !forward.out.empty()) {
      gpu::fused_attention(queries, keys, values, scale, forward.out, &natural);
    }
  }
  forward.log_sum_exp = scaled(natural, log2_e);
  return forward;
}

}  // namespace

AttentionForward attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, float scale,
                                   const Numerics& numerics, std::int64_t sequences) {
  check_keys(q, k, v, sequences);
  expect(scale > 0, "attention with a scale of {}", scale);
  const std::int64_t pairs = sequences * q.shape(1) * q.shape(2), queries = q.shape(0) / sequences;
  const Operation operation(
      trace::spans::attention,
      {4 * q.numel() * (k.shape(0) / sequences),
       2 * (q.bytes() + k.bytes()) + pairs * queries * size_of(DType::float32)});
  const Rows rows = as_rows(q, sequences), keys = as_rows(k, sequences),
             values = as_rows(v, sequences);
  if (fuses(rows, keys, numerics)) {
    return attention_fused(rows, keys, values, scale, {pairs, queries});
  }
  AttentionForward forward{{}, Tensor::empty({pairs, queries}, DType::float32, q.device())};
  const auto work = dispatch(
      q.device(),
      [&] {
        trace::recorder().kernels.insert("attention: own kernels");
        return gpu::attention_work(rows, scale, {}, numerics, forward.log_sum_exp);
      },
      [&] { return cpu_attention_work(rows, scale, {}, forward.log_sum_exp); },
      [&] { return attention_of_shapes(rows); });
  forward.out = work->attend(keys, values);
  return forward;
}

AttentionGradients attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const AttentionForward& forward, const Tensor& d_out,
                                      float scale, const Numerics&, std::int64_t sequences) {
  check_keys(q, k, v, sequences);
  check(q, forward.out, sequences, true, "a result");
  check(q, d_out, sequences, true, "a gradient");
  const std::int64_t pairs = sequences * q.shape(1) * q.shape(2);
  expect(forward.log_sum_exp.shape() == Shape{pairs, q.shape(0) / sequences},
         "attention of {} with logarithms of sums {}", q.shape(), forward.log_sum_exp.shape());
  const Operation operation(trace::spans::attention_backward,
                            {10 * q.numel() * (k.shape(0) / sequences),
                             4 * (q.bytes() + k.bytes()) + forward.log_sum_exp.bytes()});
  const auto empty = [&](const Tensor& x) {
    return Tensor::empty(x.shape(), x.dtype(), x.device());
  };
  AttentionGradients gradients{empty(q), empty(k), empty(v)};
  if (q.empty() || k.empty()) return gradients;
  dispatch(
      q.device(),
      [&] { gpu::attention_backward(q, k, v, forward, d_out, scale, sequences, gradients); },
      [&] { on_cpu(q, k, v, forward, d_out, scale, sequences, gradients); },
      [&] { note_buffers(q, sequences); });
  return gradients;
}

}  // namespace reelmesh::ops
