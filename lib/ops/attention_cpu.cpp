// Attention on the CPU: each tile of queries loops over blocks of keys; GEMMs by oneDNN, or by AMX.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/amx.hpp"
#include "ops/attention_work.hpp"
#include "ops/linear.hpp"
#include "ops/math.hpp"
#include "ops/onednn.hpp"
#include "ops/packing.hpp"
#include "ops/parallel.hpp"
#include "ops/row_sums.hpp"
#include "tensor/convert.hpp"

namespace reelmesh::ops {
namespace {

constexpr std::int64_t tile_rows = TileProduct::tile_rows;  // queries of one task
constexpr std::int64_t block_keys = Attention::block_keys;
constexpr float log2_e = 1.44269504088896341F;

[[gnu::always_inline]] inline float max_score(const float* x, std::int64_t count) {
  HalfLanes first = HalfLanes{} - std::numeric_limits<float>::infinity(), second = first;
  const std::int64_t even = count / lanes * lanes;
  for (std::int64_t k = 0; k < even; k += lanes) {
    HalfLanes a, b;
    load(x + k, a, b);
    first = a > first ? a : first;
    second = b > second ? b : second;
  }
  const HalfLanes half = first > second ? first : second;
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
  const float top = std::max(largest, scale * max_score(scores, keys));
  for (std::int64_t k = 0; k < keys; ++k) {
    scores[k] = exp2_approx(std::fma(scores[k], scale, -top));
  }
  const float block = vector_sum(scores, keys);
  const float factor = exp2_approx(largest - top);
  sum = sum * factor + block;
  largest = top;
  return factor;
}

REELMESH_CLONES void accumulate(float* total, const float* block, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) total[i] = std::fma(total[i], factor, block[i]);
}

template <class T>
void divide(const float* total, float sum, std::int64_t channels, T* y) {
  const float factor = 1.0F / sum;
  for (std::int64_t c = 0; c < channels; ++c) y[c] = T(total[c] * factor);
}

struct Extents {
  std::int64_t sequences = 0, queries = 0, batch = 0, heads = 0, channels = 0;
};

// Divides the work into tasks and keeps what is summed between calls of add(). T: type of the
// tensors.
template <class T>
class Streamed : public Attention::Work {
 public:
  // bias: float32 [head, query, key] or empty. log_sum_exp: as for cpu_attention_work.
  Streamed(const Extents& extents, Rows queries, float scale, Tensor bias, Tensor log_sum_exp)
      : extents_(extents),
        queries_(std::move(queries)),
        bias_(std::move(bias)),
        log_sum_exp_(std::move(log_sum_exp)),
        scale_(scale * log2_e),
        pairs_(extents.sequences * extents.batch * extents.heads),
        shape_{extents.sequences * extents.queries, extents.batch, extents.heads,
               extents.channels} {}

  void add(const Rows& keys, const Rows& values) override {
    const std::int64_t count = keys.count();
    expect(keys_ % block_keys == 0, "add() after {} keys, expected whole blocks", keys_);
    if (total_.empty() && out_.empty()) {
      total_ = Tensor::empty(totals_shape(), DType::float32);
      largest_ = Tensor::empty({pairs_, extents_.queries}, DType::float32);
      sum_ = Tensor::empty(largest_.shape(), DType::float32);
    }
    if (count > 0 && numel(shape_) > 0) {
      blocks_ = (count + block_keys - 1) / block_keys;
      block_bytes_ = prepare(keys, values, count);
      const std::int64_t bytes_of_pair = blocks_ * block_bytes_;
      const std::int64_t tiles = (extents_.queries + tile_rows - 1) / tile_rows;
      const std::int64_t at_once = Attention::pairs_packed(pairs_, bytes_of_pair);
      if (packed_.numel() < at_once * bytes_of_pair) {
        packed_ = Tensor::empty({at_once * bytes_of_pair}, DType::uint8);
      }
      if (at_once == 0) {
        parallel_for(pairs_, 1, [&](std::int64_t pair) {
          auto* own =
              static_cast<std::byte*>(thread_scratch(4, static_cast<std::size_t>(bytes_of_pair)));
          for (std::int64_t block = 0; block < blocks_; ++block) {
            pack(keys, values, pair, block, own + block * block_bytes_);
          }
          for (std::int64_t tile = 0; tile < tiles; ++tile) {
            attend_tile(pair, tile * tile_rows, count, own);
          }
        });
      }
      for (std::int64_t first = 0; at_once > 0 && first < pairs_; first += at_once) {
        const std::int64_t some = std::min(at_once, pairs_ - first);
        auto* packed = static_cast<std::byte*>(packed_.raw());
        parallel_for(some * blocks_, 1, [&](std::int64_t task) {
          pack(keys, values, first + task / blocks_, task % blocks_, packed + task * block_bytes_);
        });
        parallel_for(some * tiles, 1, [&](std::int64_t task) {
          const std::int64_t pair = task / tiles;
          attend_tile(first + pair, task % tiles * tile_rows, count, packed + pair * bytes_of_pair);
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
    const std::int64_t queries = extents_.queries, channels = extents_.channels,
                       pairs = extents_.batch * extents_.heads;
    if (numel(shape_) == 0) return Tensor::empty(shape_, dtype_of<T>());
    Tensor out = dtype_of<T>() == DType::float32 ? total_ : Tensor::empty(shape_, dtype_of<T>());
    parallel_for(extents_.sequences * queries, 16, [&](std::int64_t row) {
      const std::int64_t sequence = row / queries, query = row % queries;
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        const std::int64_t at = (row * pairs + pair) * channels;
        divide(total_.data<float>() + at,
               sum_.data<float>()[(sequence * pairs + pair) * queries + query], channels,
               out.data<T>() + at);
      }
    });
    return out;
  }

 protected:
  // Of total_.
  virtual Shape totals_shape() const { return shape_; }
  // Prepares for the keys of one add(), `count` of each sequence; → bytes of a packed block of keys
  // and values, a multiple of 64.
  virtual std::int64_t prepare(const Rows& keys, const Rows& values, std::int64_t count) = 0;
  // Packs one block of the keys and values of a pair.
  virtual void pack(const Rows& keys, const Rows& values, std::int64_t pair, std::int64_t block,
                    std::byte* into) const = 0;
  // Attention of queries [first, first + tile_rows) to the `keys` keys in `packed`. Totals, maxima
  // and sums are kept in memory between calls of add().
  virtual void attend_tile(std::int64_t pair, std::int64_t first, std::int64_t keys,
                           const std::byte* packed) = 0;

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
  // Of the result and the totals: the first element of a query of a pair, and the elements from a
  // query to the next.
  std::int64_t query_offset(std::int64_t pair, std::int64_t query) const {
    const auto& [sequences, queries, batch, heads, channels] = extents_;
    return ((pair / (batch * heads) * queries + query) * batch * heads + pair % (batch * heads)) *
           channels;
  }
  std::int64_t row_stride() const { return extents_.batch * extents_.heads * extents_.channels; }
  // The bias of a query of a pair and the keys from `key` of this add() on; null without a bias.
  const float* bias_at(std::int64_t pair, std::int64_t query, std::int64_t key) const {
    if (bias_.empty()) return nullptr;
    return bias_.data<float>() +
           (pair % extents_.heads * extents_.queries + query) * bias_.shape(2) + keys_ + key;
  }
  // The maxima and sums so far of `count` queries: those of earlier calls of add().
  void load_state(std::int64_t pair, std::int64_t first, std::int64_t count, float* largest,
                  float* sum) const {
    if (keys_ == 0) {
      std::fill_n(largest, count, -std::numeric_limits<float>::infinity());
      std::fill_n(sum, count, 0.0F);
      return;
    }
    std::copy_n(largest_.data<float>() + pair * extents_.queries + first, count, largest);
    std::copy_n(sum_.data<float>() + pair * extents_.queries + first, count, sum);
  }
  void keep_state(std::int64_t pair, std::int64_t first, std::int64_t count, const float* largest,
                  const float* sum) {
    std::copy_n(largest, count, largest_.data<float>() + pair * extents_.queries + first);
    std::copy_n(sum, count, sum_.data<float>() + pair * extents_.queries + first);
  }

  // In attend(): what remains of `count` queries when they are done.
  void write_log_sum_exp(std::int64_t pair, std::int64_t first, std::int64_t count,
                         const float* largest, const float* sum) {
    if (log_sum_exp_.empty()) return;
    float* into = log_sum_exp_.data<float>() + pair * extents_.queries + first;
    for (std::int64_t r = 0; r < count; ++r) {
      into[r] = static_cast<float>(double{largest[r]} + std::log2(double{sum[r]}));
    }
  }

  Extents extents_;
  Rows queries_;
  Tensor bias_;
  Tensor log_sum_exp_;  // for attend() to write, or empty
  float scale_;
  std::int64_t pairs_;     // sequences · batch items · heads
  Shape shape_;            // of the result
  Tensor out_;             // in attend(): the result; otherwise empty
  Tensor total_;           // float32: sums of weighted values
  Tensor largest_, sum_;   // float32 [pair, query]: largest score, sum of weights
  std::int64_t keys_ = 0;  // keys of a sequence added so far
  std::int64_t blocks_ = 0, block_bytes_ = 0;
  Tensor packed_;
};

// GEMMs by oneDNN. C: type of their inputs.
template <class T, class C>
class ByOneDnn : public Streamed<T> {
 public:
  ByOneDnn(const Extents& extents, const Rows& queries, float scale, const Tensor& bias,
           const Tensor& log_sum_exp)
      : Streamed<T>(extents, queries, scale, bias, log_sum_exp),
        last_rows_(rows_of_last_tile(tile_rows, extents.queries % tile_rows, dtype_of<C>())) {}

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

  const Products& tile_products(std::int64_t rows, std::int64_t keys) const {
    const Tile& tile = rows == tile_rows ? tile_ : last_tile_;
    return keys == block_keys ? tile.whole : tile.rest;
  }

  std::int64_t prepare(const Rows& keys, const Rows& values, std::int64_t count) override {
    const std::int64_t channels = this->extents_.channels;
    const std::int64_t rest = count % block_keys;
    const auto make = [&](std::int64_t rows, Tile& tile) {
      const auto products = [&](std::int64_t n) {
        return Products{TileProduct(rows, n, channels, dtype_of<C>()),
                        TileProduct(rows, channels, n, dtype_of<C>())};
      };
      if (count >= block_keys && this->keys_ == 0) tile.whole = products(block_keys);
      if (rest > 0) tile.rest = products(rest);
    };
    make(tile_rows, tile_);
    if (last_rows_ > 0) make(last_rows_, last_tile_);
    // Full and partial blocks occupy the same number of elements in the buffer.
    const Products& larger = count >= block_keys ? tile_.whole : tile_.rest;
    key_elements_ = larger.scores.packed_elements();
    std::int64_t value_elements = larger.values.packed_elements();
    if (rest > 0) {
      key_elements_ = std::max(key_elements_, tile_.rest.scores.packed_elements());
      value_elements = std::max(value_elements, tile_.rest.values.packed_elements());
    }
    const auto packing = [&](const Products& products) {
      return Packing{products.scores.packing(true, direct ? this->stride(keys) : channels),
                     products.values.packing(false, direct ? this->stride(values) : channels)};
    };
    if (count >= block_keys) whole_ = packing(tile_.whole);
    if (rest > 0) rest_ = packing(tile_.rest);
    return (key_elements_ + value_elements) * std::int64_t{sizeof(C)};
  }

  void pack(const Rows& keys, const Rows& values, std::int64_t pair, std::int64_t block,
            std::byte* into) const override {
    const std::int64_t channels = this->extents_.channels;
    const std::int64_t n = std::min(block_keys, keys.count() - block * block_keys);
    const Packing& packing = n == block_keys ? whole_ : rest_;
    const auto pack_rows = [&](const Rows& rows, const Primitive& how, C* to) {
      const T* from = this->at(rows, pair, block * block_keys);
      if constexpr (direct) {
        how.run({from, to});
      } else {
        auto* dense = static_cast<C*>(
            thread_scratch(0, static_cast<std::size_t>(block_keys * channels) * sizeof(C)));
        gather_rows(from, this->stride(rows), n, channels, dense);
        how.run({dense, to});
      }
    };
    auto* packed = reinterpret_cast<C*>(into);
    pack_rows(keys, packing.keys, packed);
    pack_rows(values, packing.values, packed + key_elements_);
  }

  void attend_tile(std::int64_t pair, std::int64_t first, std::int64_t keys,
                   const std::byte* packed) override {
    const std::int64_t queries = this->extents_.queries, channels = this->extents_.channels;
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
    gather_rows(this->at(this->queries_, pair, first), this->stride(this->queries_), count,
                channels, query);

    const std::int64_t offset = this->query_offset(pair, first), row = this->row_stride();
    float largest[tile_rows], sum[tile_rows], factor[tile_rows];
    // Rows of padding too.
    std::fill_n(largest, tile_rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, tile_rows, 0.0F);
    this->load_state(pair, first, count, largest, sum);
    if (this->keys_ == 0) {
      std::fill_n(total, rows * channels, 0.0F);
    } else {
      gather_rows(this->total_.template data<float>() + offset, row, count, channels, total);
    }

    for (std::int64_t block = 0; block < this->blocks_; ++block, packed += this->block_bytes_) {
      const std::int64_t n = std::min(block_keys, keys - block * block_keys);
      const Products& products = tile_products(rows, n);
      products.scores.run(query, packed, scores);
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* bias =
            r >= count ? nullptr : this->bias_at(pair, first + r, block * block_keys);
        factor[r] = softmax_block(scores + r * n, n, this->scale_, bias, largest[r], sum[r]);
      }
      const void* weights = scores;
      if constexpr (!std::is_same_v<C, float>) {
        convert(scores, DType::float32, narrow, dtype_of<C>(), rows * n);
        weights = narrow;
      }
      products.values.run(weights, reinterpret_cast<const C*>(packed) + key_elements_, block_out);
      for (std::int64_t r = 0; r < count; ++r) {
        accumulate(total + r * channels, block_out + r * channels, channels, factor[r]);
      }
    }
    if (!this->out_.empty()) {
      for (std::int64_t r = 0; r < count; ++r) {
        divide(total + r * channels, sum[r], channels,
               this->out_.template data<T>() + offset + r * row);
      }
      this->write_log_sum_exp(pair, first, count, largest, sum);
      return;
    }
    for (std::int64_t r = 0; r < count; ++r) {
      std::copy_n(total + r * channels, channels,
                  this->total_.template data<float>() + offset + r * row);
    }
    this->keep_state(pair, first, count, largest, sum);
  }

  // Without a change of type, keys and values are packed directly from their tensors.
  static constexpr bool direct = std::is_same_v<T, C>;

  std::int64_t last_rows_;  // rows of the GEMMs for the last tile of queries
  Tile tile_, last_tile_;
  Packing whole_, rest_;
  std::int64_t key_elements_ = 0;
};

// GEMMs and softmax by AMX's kernels.
class ByAmx : public Streamed<BFloat16> {
 public:
  using Streamed::Streamed;

 private:
  static constexpr std::int64_t value = sizeof(BFloat16), tile_floats = lanes * lanes;
  static_assert(lanes == amx::tile_rows);
  // Keys whose scores are computed at a time: a part of a block, so that scores and weights of a
  // tile of queries stay in a core's first-level cache.
  static constexpr std::int64_t cached_keys = 256;
  static_assert(block_keys % cached_keys == 0 && cached_keys % amx::step_values == 0);

  std::int64_t prepare(const Rows&, const Rows&, std::int64_t count) override {
    const std::int64_t keys = std::min(count, block_keys);
    key_bytes_ = amx::packed_elements(keys, extents_.channels) * value;
    return key_bytes_ + amx::packed_elements(extents_.channels, keys) * value;
  }

  void pack(const Rows& keys, const Rows& values, std::int64_t pair, std::int64_t block,
            std::byte* into) const override {
    const std::int64_t channels = extents_.channels, first = block * block_keys;
    const std::int64_t n = std::min(block_keys, keys.count() - first);
    amx::pack_right_transposed(at(keys, pair, first), stride(keys), channels, n, into);
    amx::pack_right(at(values, pair, first), stride(values), n, channels, into + key_bytes_);
  }

  void attend_tile(std::int64_t pair, std::int64_t first, std::int64_t keys,
                   const std::byte* packed) override {
    const std::int64_t last = std::min(first + tile_rows, extents_.queries);
    const amx::Scope scope;
    for (std::int64_t query = first; query < last; query += amx::block) {
      attend_rows(pair, query, std::min(amx::block, last - query), keys, packed);
    }
  }

  Tensor finish() override {
    expect(keys_ > 0 || numel(shape_) == 0, "attention without keys");
    Tensor out = Tensor::empty(shape_, DType::bfloat16);
    if (out.empty()) return out;
    parallel_for(pairs_ * query_blocks(), 4, [&](std::int64_t task) {
      const std::int64_t pair = task / query_blocks(), first = task % query_blocks() * amx::block;
      const std::int64_t count = std::min(amx::block, extents_.queries - first);
      write(pair, first, count, total_at(pair, first),
            sum_.data<float>() + pair * extents_.queries + first, out);
    });
    return out;
  }

  // Totals of a pair are kept in blocks of queries, in tiles as the kernels use them. The last
  // block may have one row of tiles.
  std::int64_t query_blocks() const { return (extents_.queries + amx::block - 1) / amx::block; }
  std::int64_t floats_of_tiles(std::int64_t row_tiles) const {
    return row_tiles * amx::tile_count(extents_.channels) * tile_floats;
  }
  Shape totals_shape() const override {
    return {pairs_, floats_of_tiles(amx::tile_count(extents_.queries))};
  }
  float* total_at(std::int64_t pair, std::int64_t first) {
    return total_.data<float>() + pair * total_.shape(1) + floats_of_tiles(first / amx::tile_rows);
  }

  // Attention of `count` queries, at most amx::block.
  void attend_rows(std::int64_t pair, std::int64_t first, std::int64_t count, std::int64_t keys,
                   const std::byte* packed) {
    const std::int64_t channels = extents_.channels, channel_tiles = amx::tile_count(channels);
    const std::int64_t row_tiles = amx::tile_count(count);
    const std::int64_t floats = floats_of_tiles(row_tiles);
    const auto bytes = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    auto* query = static_cast<std::byte*>(
        thread_scratch(0, bytes(amx::packed_elements(amx::block, channels) * value)));
    auto* scores =
        static_cast<float*>(thread_scratch(1, bytes(amx::block * cached_keys) * sizeof(float)));
    auto* weights = static_cast<std::byte*>(
        thread_scratch(2, bytes(amx::packed_elements(amx::block, cached_keys) * value)));
    float* total = out_.empty()
                       ? total_at(pair, first)
                       : static_cast<float*>(thread_scratch(3, bytes(floats) * sizeof(float)));
    if (keys_ == 0) std::fill_n(total, floats, 0.0F);
    amx::pack_left(at(queries_, pair, first), stride(queries_), count, channels, query);
    float largest[amx::block], sum[amx::block];
    load_state(pair, first, count, largest, sum);

    const amx::Kernels& use = amx::kernels();
    for (std::int64_t block = 0; block < blocks_; ++block, packed += block_bytes_) {
      const std::int64_t in_block = std::min(block_keys, keys - block * block_keys);
      for (std::int64_t first_key = 0; first_key < in_block; first_key += cached_keys) {
        const std::int64_t n = std::min(cached_keys, in_block - first_key);
        for (std::int64_t key = 0; key < n; key += amx::block) {
          const std::int64_t tiles = amx::tile_count(std::min(amx::block, n - key));
          use.product(
              {query, row_tiles, packed + amx::packed_elements(first_key + key, channels) * value,
               tiles, amx::step_count(channels), scores + key / lanes * row_tiles * tile_floats,
               false},
              nullptr);
        }
        use.softmax({scores, row_tiles, count, n, scale_,
                     bias_at(pair, first, block * block_keys + first_key),
                     bias_.empty() ? 0 : bias_.shape(2), largest, sum, total, channel_tiles,
                     weights});
        for (std::int64_t channel = 0; channel < channels; channel += amx::block) {
          const std::int64_t tiles = amx::tile_count(std::min(amx::block, channels - channel));
          use.product(
              {weights, row_tiles,
               packed + key_bytes_ + amx::packed_elements(channel, in_block) * value +
                   amx::step_count(first_key) * tiles * amx::tile_bytes,
               tiles, amx::step_count(n), total + channel / lanes * row_tiles * tile_floats, true},
              nullptr);
        }
      }
    }
    if (out_.empty()) {
      keep_state(pair, first, count, largest, sum);
    } else {
      write(pair, first, count, total, sum, out_);
      write_log_sum_exp(pair, first, count, largest, sum);
    }
  }

  // The results of `count` queries: their totals divided by their sums.
  void write(std::int64_t pair, std::int64_t first, std::int64_t count, const float* total,
             const float* sum, Tensor& out) const {
    float factors[amx::block];
    for (std::int64_t r = 0; r < count; ++r) factors[r] = 1.0F / sum[r];
    const std::int64_t row_tiles = amx::tile_count(count);
    for (std::int64_t channel = 0; channel < extents_.channels; channel += amx::block) {
      amx::kernels().finish(
          {total + channel * row_tiles * lanes, row_tiles, count,
           std::min(amx::block, extents_.channels - channel), factors, nullptr, Activation::none,
           out.data<BFloat16>() + query_offset(pair, first) + channel, row_stride()});
    }
  }

  std::int64_t key_bytes_ = 0;
};

}  // namespace

std::int64_t packed_attention_bytes(std::int64_t keys, std::int64_t channels, DType products,
                                    PackedFor target) {
  std::int64_t of_keys = 0, of_values = 0;
  const auto count_block = [&](std::int64_t n) {
    of_keys = std::max(of_keys, packed_matrix_bytes(channels, n, products, target));
    of_values = std::max(of_values, packed_matrix_bytes(n, channels, products, target));
  };
  if (keys >= block_keys) count_block(block_keys);
  if (keys % block_keys > 0) count_block(keys % block_keys);
  return (keys + block_keys - 1) / block_keys * (of_keys + of_values);
}

std::int64_t attention_sums_bytes(std::int64_t queries, std::int64_t channels, DType products,
                                  PackedFor target) {
  const bool in_tiles =
      products == DType::bfloat16 && (uses_amx(products) || target == PackedFor::any_processor);
  const std::int64_t sums =
      in_tiles ? amx::tile_count(queries) * amx::tile_count(channels) * lanes * lanes
               : queries * channels;
  return (sums + 2 * queries) * size_of(DType::float32);
}

namespace {

// What Streamed takes, or on a GPU the kernels that go on from call to call.
class OfShapes final : public Attention::Work {
 public:
  explicit OfShapes(const Rows& queries) : queries_(queries) {
    const Shape& s = queries.tensor.shape();
    shape_ = {s[0], s[1], s[3], s[4]};
    pairs_ = queries.sequences * s[1] * s[3];
    if (device().is_cuda()) take_sums();
  }

  void add(const Rows& keys, const Rows&) override {
    if (sums_.empty() && out_.empty()) take_sums();
    const std::int64_t count = keys.count(), channels = shape_[3];
    if (device().is_cuda() || count == 0 || numel(shape_) == 0) return;
    const Precision& precision = Ledger::current().precision();
    const DType products = precision.products_of(queries_.tensor.dtype());
    const std::int64_t bytes =
        packed_attention_bytes(count, channels, products, precision.packed_for);
    const std::int64_t packed = Attention::pairs_packed(pairs_, bytes) * bytes;
    if (packed_.numel() < packed) packed_ = Tensor::empty({packed}, DType::uint8, device());
    note_scratch(products, packed == 0 ? bytes : 0);
  }
  Tensor attend(const Rows& keys, const Rows& values) override {
    out_ = Tensor::empty(shape_, queries_.tensor.dtype(), device());
    add(keys, values);
    return out_;
  }
  Tensor finish() override {
    const DType dtype = queries_.tensor.dtype();
    const bool in_place = dtype == DType::float32 && !device().is_cuda();
    return in_place ? sums_.view_bytes(0, shape_, dtype) : Tensor::empty(shape_, dtype, device());
  }

 private:
  Device device() const { return queries_.tensor.device(); }
  void take_sums() {
    const std::int64_t queries = queries_.count();
    const Precision& precision = Ledger::current().precision();
    const DType products = precision.products_of(queries_.tensor.dtype());
    const std::int64_t bytes =
        device().is_cuda()
            ? (queries * shape_[3] + 2 * queries) * size_of(DType::float32)
            : attention_sums_bytes(queries, shape_[3], products, precision.packed_for);
    // On a host the largest scores and the sums of weights are blocks of their own.
    const std::int64_t of_each = device().is_cuda() ? 0 : queries * size_of(DType::float32);
    sums_ = Tensor::empty({pairs_ * (bytes - 2 * of_each)}, DType::uint8, device());
    for (Tensor& each : of_queries_) {
      each = Tensor::empty({pairs_ * of_each}, DType::uint8, device());
    }
  }
  // Buffers of the threads, for both kinds of kernels. packed: of one pair, in a thread's buffer.
  void note_scratch(DType products, std::int64_t packed) const {
    Ledger& ledger = Ledger::current();
    const std::int64_t channels = shape_[3], value = size_of(products);
    ledger.note_scratch(
        0, std::max(tile_rows, products == queries_.tensor.dtype() ? tile_rows : block_keys) *
               channels * value);
    ledger.note_scratch(1, tile_rows * block_keys * size_of(DType::float32));
    ledger.note_scratch(2, tile_rows * block_keys * value);
    ledger.note_scratch(3, 2 * tile_rows * channels * size_of(DType::float32));
    ledger.note_scratch(4, packed);
  }

  Rows queries_;
  Shape shape_;
  std::int64_t pairs_ = 0;
  Tensor out_, sums_, packed_;
  std::array<Tensor, 2> of_queries_;
};

}  // namespace

std::unique_ptr<Attention::Work> attention_of_shapes(const Rows& queries) {
  return std::make_unique<OfShapes>(queries);
}

std::unique_ptr<Attention::Work> cpu_attention_work(const Rows& queries, float scale,
                                                    const Tensor& bias, Tensor log_sum_exp) {
  const Shape& shape = queries.tensor.shape();
  const Extents extents{queries.sequences, queries.count(), shape[1], shape[3], shape[4]};
  const DType dtype = queries.tensor.dtype();
  return visit_float(dtype, [&](auto type) -> std::unique_ptr<Attention::Work> {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (uses_amx(compute_dtype(dtype))) {
        return std::make_unique<ByAmx>(extents, queries, scale, bias, log_sum_exp);
      }
      if (compute_dtype(dtype) == DType::bfloat16) {
        return std::make_unique<ByOneDnn<T, BFloat16>>(extents, queries, scale, bias, log_sum_exp);
      }
    }
    return std::make_unique<ByOneDnn<T, float>>(extents, queries, scale, bias, log_sum_exp);
  });
}

}  // namespace reelmesh::ops
