// Attention on the CPU: each tile of queries loops over blocks of keys; GEMMs by oneDNN.
#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/attention_work.hpp"
#include "ops/math.hpp"
#include "ops/onednn.hpp"
#include "ops/packing.hpp"
#include "ops/parallel.hpp"
#include "tensor/convert.hpp"

namespace reelmesh::ops {
namespace {

constexpr std::int64_t tile_rows = TileProduct::tile_rows;  // queries of one task
constexpr std::int64_t block_keys = Attention::block_keys;
constexpr std::int64_t lanes = 16;  // partial sums of a row, added in a fixed order
constexpr float log2_e = 1.44269504088896341F;

using Lanes [[gnu::vector_size(lanes * sizeof(float))]] = float;

[[gnu::always_inline]] inline float largest_of(const float* x, std::int64_t count) {
  Lanes running = Lanes{} - std::numeric_limits<float>::infinity();
  const std::int64_t even = count / lanes * lanes;
  for (std::int64_t k = 0; k < even; k += lanes) {
    Lanes next;
    std::memcpy(&next, x + k, sizeof(next));
    running = next > running ? next : running;
  }
  const auto first = __builtin_shufflevector(running, running, 0, 1, 2, 3, 4, 5, 6, 7);
  const auto second = __builtin_shufflevector(running, running, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto half = first > second ? first : second;
  const float even_half = std::max(std::max(half[0], half[2]), std::max(half[4], half[6]));
  const float odd_half = std::max(std::max(half[1], half[3]), std::max(half[5], half[7]));
  float largest = std::max(even_half, odd_half);
  for (std::int64_t k = even; k < count; ++k) largest = std::max(largest, x[k]);
  return largest;
}

// Online softmax for one row of one block. scores: dot products q·k, overwritten with weights
// 2^(score − maximum), where score = (scale·q·k + bias)·log2(e); `scale` includes that factor,
// `bias` does not. Updates the row's maximum and sum; returns the factor for its earlier totals.
REELMESH_CLONES float softmax_block(float* scores, std::int64_t keys, float scale,
                                    const float* bias, float& largest, float& sum) {
  if (bias != nullptr) {
    for (std::int64_t k = 0; k < keys; ++k) {
      scores[k] = std::fma(scores[k], scale, bias[k] * log2_e);
    }
    scale = 1;
  }
  // Rounding is monotonic and scale > 0, so the largest q·k gives the largest score.
  const float top = std::max(largest, scale * largest_of(scores, keys));
  float partial[lanes] = {};
  const std::int64_t even = keys / lanes * lanes;
  for (std::int64_t k = 0; k < even; k += lanes) {
    for (std::int64_t i = 0; i < lanes; ++i) {
      const float weight = exp2_approx(std::fma(scores[k + i], scale, -top));
      scores[k + i] = weight;
      partial[i] += weight;
    }
  }
  for (std::int64_t half = lanes / 2; half > 1; half /= 2) {
    for (std::int64_t i = 0; i < half; ++i) partial[i] += partial[i + half];
  }
  float block = partial[0] + partial[1];
  for (std::int64_t k = even; k < keys; ++k) {
    scores[k] = exp2_approx(std::fma(scores[k], scale, -top));
    block += scores[k];
  }
  const float factor = exp2_approx(largest - top);
  sum = sum * factor + block;
  largest = top;
  return factor;
}

REELMESH_CLONES void accumulate(float* total, const float* block, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) total[i] = std::fma(total[i], factor, block[i]);
}

// Copies rows that are `stride` elements apart to a dense block of type Into.
template <class From, class Into>
void gather_rows(const From* from, std::int64_t stride, std::int64_t count, std::int64_t channels,
                 Into* into) {
  for (std::int64_t r = 0; r < count; ++r) {
    convert(from + r * stride, dtype_of<From>(), into + r * channels, dtype_of<Into>(), channels);
  }
}

template <class T>
void divide(const float* total, float sum, std::int64_t channels, T* y) {
  for (std::int64_t c = 0; c < channels; ++c) y[c] = T(total[c] / sum);
}

struct Extents {
  std::int64_t sequences = 0, queries = 0, batch = 0, heads = 0, channels = 0;
};

// T: type of the tensors, C: input type of the GEMMs.
template <class T, class C>
class Streamed : public Attention::Work {
 public:
  // bias: float32 [head, query, key] or empty.
  Streamed(const Extents& extents, Rows queries, float scale, Tensor bias)
      : extents_(extents),
        queries_(std::move(queries)),
        bias_(std::move(bias)),
        scale_(scale * log2_e),
        pairs_(extents.sequences * extents.batch * extents.heads),
        shape_{extents.sequences * extents.queries, extents.batch, extents.heads, extents.channels},
        last_rows_(rows_of_last_tile(tile_rows, extents.queries % tile_rows, dtype_of<C>())) {}

  void add(const Rows& keys, const Rows& values) override {
    const std::int64_t count = keys.count();
    expect(keys_ % block_keys == 0, "add() after {} keys, expected whole blocks", keys_);
    if (total_.empty() && out_.empty()) {
      total_ = Tensor::empty(shape_, DType::float32);
      largest_ = Tensor::empty({pairs_, extents_.queries}, DType::float32);
      sum_ = Tensor::empty(largest_.shape(), DType::float32);
    }
    if (count > 0 && numel(shape_) > 0) {
      const Packings packings = prepare(keys, values, count);
      const std::int64_t tiles = (extents_.queries + tile_rows - 1) / tile_rows;
      const std::int64_t at_once = Attention::pairs_packed(pairs_, bytes_of_pair());
      if (at_once == 0) {
        parallel_for(pairs_, 1, [&](std::int64_t pair) {
          auto* own = static_cast<C*>(thread_scratch(4, static_cast<std::size_t>(bytes_of_pair())));
          for (std::int64_t block = 0; block < blocks_; ++block) {
            pack(keys, values, packings, pair, block, own + block * block_elements());
          }
          for (std::int64_t tile = 0; tile < tiles; ++tile) {
            attend_tile(pair, tile * tile_rows, count, own);
          }
        });
      }
      for (std::int64_t first = 0; at_once > 0 && first < pairs_; first += at_once) {
        const std::int64_t some = std::min(at_once, pairs_ - first);
        parallel_for(some * blocks_, 1, [&](std::int64_t task) {
          pack(keys, values, packings, first + task / blocks_, task % blocks_,
               packed_.data<C>() + task * block_elements());
        });
        parallel_for(some * tiles, 1, [&](std::int64_t task) {
          const std::int64_t pair = task / tiles;
          attend_tile(first + pair, task % tiles * tile_rows, count,
                      packed_.data<C>() + pair * blocks_ * block_elements());
        });
      }
    }
    keys_ += count;
  }

  // Each tile is divided by its sum as soon as it is done; totals are not stored.
  Tensor attend(const Rows& keys, const Rows& values) override {
    expect(keys.count() > 0 || numel(shape_) == 0, "attention without keys");
    out_ = Tensor::empty(shape_, dtype_of<T>());
    add(keys, values);
    return out_;
  }

  Tensor finish() override {
    expect(keys_ > 0 || numel(shape_) == 0, "attention without keys");
    const auto& [sequences, queries, batch, heads, channels] = extents_;
    if (numel(shape_) == 0) return Tensor::empty(shape_, dtype_of<T>());
    Tensor out = dtype_of<T>() == DType::float32 ? total_ : Tensor::empty(shape_, dtype_of<T>());
    parallel_for(sequences * queries, 16, [&](std::int64_t row) {
      const std::int64_t sequence = row / queries, query = row % queries;
      for (std::int64_t pair = 0; pair < batch * heads; ++pair) {
        const std::int64_t at = (row * batch * heads + pair) * channels;
        divide(total_.data<float>() + at,
               sum_.data<float>()[(sequence * batch * heads + pair) * queries + query], channels,
               out.data<T>() + at);
      }
    });
    return out;
  }

 private:
  // GEMMs for one block of keys: query·keyᵀ, and weights·values.
  struct Products {
    TileProduct scores, values;
  };
  // … for one tile of queries: blocks of block_keys keys, and the last, smaller block.
  struct Tile {
    Products whole, rest;
  };
  // Reorders that pack one block of keys and values.
  struct Packing {
    Primitive keys, values;
  };
  struct Packings {
    Packing whole, rest;
  };

  // Address of a row of pair (sequence · batch + batch item) · heads + head. Consecutive rows are
  // stride(rows) elements apart.
  const T* at(const Rows& rows, std::int64_t pair, std::int64_t row) const {
    const auto& [sequences, queries, batch, heads, channels] = extents_;
    const std::int64_t part = pair / heads % batch * rows.tensor.shape(2) + rows.part;
    return rows.tensor.template data<T>() +
           (pair / (batch * heads) * rows.count() + row) * stride(rows) +
           (part * heads + pair % heads) * channels;
  }
  static std::int64_t stride(const Rows& rows) {
    return rows.tensor.empty() ? 0 : rows.tensor.numel() / rows.tensor.shape(0);
  }
  const Products& products_of(std::int64_t rows, std::int64_t keys) const {
    const Tile& tile = rows == tile_rows ? tile_ : last_tile_;
    return keys == block_keys ? tile.whole : tile.rest;
  }
  std::int64_t block_elements() const { return key_elements_ + value_elements_; }
  std::int64_t bytes_of_pair() const {
    return blocks_ * block_elements() * std::int64_t{sizeof(C)};
  }

  // Creates the GEMMs for the keys of one add(), and the buffer for packed keys and values.
  Packings prepare(const Rows& keys, const Rows& values, std::int64_t count) {
    const std::int64_t channels = extents_.channels;
    const std::int64_t rest = count % block_keys;
    const auto make = [&](std::int64_t rows, Tile& tile) {
      const auto products = [&](std::int64_t n) {
        return Products{TileProduct(rows, n, channels, dtype_of<C>()),
                        TileProduct(rows, channels, n, dtype_of<C>())};
      };
      if (count >= block_keys && keys_ == 0) tile.whole = products(block_keys);
      if (rest > 0) tile.rest = products(rest);
    };
    make(tile_rows, tile_);
    if (last_rows_ > 0) make(last_rows_, last_tile_);
    // Full and partial blocks occupy the same number of elements in the buffer.
    const Products& larger = count >= block_keys ? tile_.whole : tile_.rest;
    key_elements_ = larger.scores.packed_elements();
    value_elements_ = larger.values.packed_elements();
    if (rest > 0) {
      key_elements_ = std::max(key_elements_, tile_.rest.scores.packed_elements());
      value_elements_ = std::max(value_elements_, tile_.rest.values.packed_elements());
    }
    blocks_ = (count + block_keys - 1) / block_keys;
    const std::int64_t elements =
        Attention::pairs_packed(pairs_, bytes_of_pair()) * blocks_ * block_elements();
    if (packed_.numel() < elements) packed_ = Tensor::empty({elements}, dtype_of<C>());
    const auto packing = [&](const Products& products) {
      return Packing{products.scores.packing(true, direct ? stride(keys) : channels),
                     products.values.packing(false, direct ? stride(values) : channels)};
    };
    return {count >= block_keys ? packing(tile_.whole) : Packing{},
            rest > 0 ? packing(tile_.rest) : Packing{}};
  }

  // Packs one block of the keys and values of a pair.
  void pack(const Rows& keys, const Rows& values, const Packings& packings, std::int64_t pair,
            std::int64_t block, C* into) const {
    const std::int64_t channels = extents_.channels;
    const std::int64_t n = std::min(block_keys, keys.count() - block * block_keys);
    const Packing& packing = n == block_keys ? packings.whole : packings.rest;
    const auto pack_rows = [&](const Rows& rows, const Primitive& how, C* to) {
      const T* from = at(rows, pair, block * block_keys);
      if constexpr (direct) {
        how.run({from, to});
      } else {
        auto* dense = static_cast<C*>(
            thread_scratch(0, static_cast<std::size_t>(block_keys * channels) * sizeof(C)));
        gather_rows(from, stride(rows), n, channels, dense);
        how.run({dense, to});
      }
    };
    pack_rows(keys, packing.keys, into);
    pack_rows(values, packing.values, into + key_elements_);
  }

  // Attention of one tile of queries to the keys in `packed`. Totals, maxima and sums are kept in
  // memory between calls of add().
  void attend_tile(std::int64_t pair, std::int64_t first, std::int64_t keys, const C* packed) {
    const auto& [sequences, queries, batch, heads, channels] = extents_;
    const std::int64_t count = std::min(tile_rows, queries - first);
    const std::int64_t rows = count == tile_rows ? tile_rows : last_rows_;
    auto* query = static_cast<C*>(
        thread_scratch(0, static_cast<std::size_t>(tile_rows * channels) * sizeof(C)));
    auto* scores = static_cast<float*>(
        thread_scratch(1, static_cast<std::size_t>(tile_rows * block_keys) * sizeof(float)));
    [[maybe_unused]] void* narrow =
        thread_scratch(2, static_cast<std::size_t>(tile_rows * block_keys) * sizeof(C));
    auto* block_out = static_cast<float*>(
        thread_scratch(3, static_cast<std::size_t>(2 * tile_rows * channels) * sizeof(float)));
    float* total = block_out + tile_rows * channels;
    std::fill_n(query, rows * channels, C(0.0F));
    gather_rows(at(queries_, pair, first), stride(queries_), count, channels, query);

    const std::int64_t sequence = pair / (batch * heads);
    const std::int64_t place =
        ((sequence * queries + first) * batch * heads + pair % (batch * heads)) * channels;
    const std::int64_t row = batch * heads * channels;
    const auto kept = [&](Tensor& of_queries) {
      return of_queries.data<float>() + pair * queries + first;
    };
    float largest[tile_rows], sum[tile_rows] = {}, factor[tile_rows];
    std::fill_n(largest, tile_rows, -std::numeric_limits<float>::infinity());
    if (keys_ == 0) {
      std::fill_n(total, rows * channels, 0.0F);
    } else {
      gather_rows(total_.data<float>() + place, row, count, channels, total);
      std::copy_n(kept(largest_), count, largest);
      std::copy_n(kept(sum_), count, sum);
    }

    for (std::int64_t block = 0; block < blocks_; ++block, packed += block_elements()) {
      const std::int64_t n = std::min(block_keys, keys - block * block_keys);
      const Products& products = products_of(rows, n);
      products.scores.run(query, packed, scores);
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* bias = bias_.empty() || r >= count
                                ? nullptr
                                : bias_.data<float>() +
                                      (pair % heads * queries + first + r) * bias_.shape(2) +
                                      keys_ + block * block_keys;
        factor[r] = softmax_block(scores + r * n, n, scale_, bias, largest[r], sum[r]);
      }
      const void* weights = scores;
      if constexpr (!std::is_same_v<C, float>) {
        convert(scores, DType::float32, narrow, dtype_of<C>(), rows * n);
        weights = narrow;
      }
      products.values.run(weights, packed + key_elements_, block_out);
      for (std::int64_t r = 0; r < count; ++r) {
        accumulate(total + r * channels, block_out + r * channels, channels, factor[r]);
      }
    }
    if (!out_.empty()) {
      for (std::int64_t r = 0; r < count; ++r) {
        divide(total + r * channels, sum[r], channels, out_.data<T>() + place + r * row);
      }
      return;
    }
    for (std::int64_t r = 0; r < count; ++r) {
      std::copy_n(total + r * channels, channels, total_.data<float>() + place + r * row);
    }
    std::copy_n(largest, count, kept(largest_));
    std::copy_n(sum, count, kept(sum_));
  }

  // Without a change of type, keys and values are packed directly from their tensors.
  static constexpr bool direct = std::is_same_v<T, C>;

  Extents extents_;
  Rows queries_;
  Tensor bias_;
  float scale_;
  std::int64_t pairs_;     // sequences · batch items · heads
  Shape shape_;            // of the result
  Tensor out_;             // in attend(): the result; otherwise empty
  Tensor total_;           // float32, shape_: sums of weighted values
  Tensor largest_, sum_;   // float32 [pair, query]: largest score, sum of weights
  std::int64_t keys_ = 0;  // keys of a sequence added so far
  std::int64_t blocks_ = 0;
  std::int64_t last_rows_;  // rows of the GEMMs for the last tile of queries
  Tile tile_, last_tile_;
  std::int64_t key_elements_ = 0, value_elements_ = 0;
  Tensor packed_;
};

}  // namespace

std::int64_t packed_attention_bytes(std::int64_t keys, std::int64_t channels, DType products,
                                    PackedFor target) {
  std::int64_t of_keys = 0, of_values = 0;
  const auto block_of = [&](std::int64_t n) {
    of_keys = std::max(of_keys, packed_matrix_bytes(channels, n, products, target));
    of_values = std::max(of_values, packed_matrix_bytes(n, channels, products, target));
  };
  if (keys >= block_keys) block_of(block_keys);
  if (keys % block_keys > 0) block_of(keys % block_keys);
  return (keys + block_keys - 1) / block_keys * (of_keys + of_values);
}

std::unique_ptr<Attention::Work> cpu_attention_work(const Rows& queries, float scale,
                                                    const Tensor& bias) {
  const Shape& shape = queries.tensor.shape();
  const Extents extents{queries.sequences, queries.count(), shape[1], shape[3], shape[4]};
  const DType dtype = queries.tensor.dtype();
  return visit_float(dtype, [&](auto type) -> std::unique_ptr<Attention::Work> {
    using T = decltype(type);
    if (compute_dtype(dtype) == DType::bfloat16) {
      return std::make_unique<Streamed<T, BFloat16>>(extents, queries, scale, bias);
    }
    return std::make_unique<Streamed<T, float>>(extents, queries, scale, bias);
  });
}

}  // namespace reelmesh::ops
