#pragma once
// How parts of the ops of lib/ops are computed: which arguments are cut, and along which axes.
#include "ops/attention.hpp"
#include "ops/attention_backward.hpp"
#include "ops/convolution.hpp"
#include "ops/folding.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "ops/norm_gradients.hpp"
#include "ops/pointwise.hpp"
#include "ops/rows.hpp"
#include "ops/token_products.hpp"
#include "support/op_parts.hpp"

namespace reelmesh::test {

using Results = std::vector<PartResult>;
using Compute = std::function<Results(Part&)>;

/// Calls f with lengths of rows, and joins the results: whole packs of kernels (16 bytes), or not,
/// and more than a warp or a block has threads.
inline Compute for_lengths(const std::function<Results(Part&, std::int64_t)>& f) {
  return [f](Part& part) {
    Results all;
    for (const std::int64_t n : {24, 37, 300})
      std::ranges::move(f(part, n), std::back_inserter(all));
    return all;
  };
}

// Linear layers.

inline Compute linear(std::int64_t in, std::int64_t out, ops::Activation activation) {
  return [=](Part& part) -> Results {
    const ops::Linear layer(part.whole({out, in}), part.whole({out}));
    return {{layer(part.cut({part.all, in}), activation)}};
  };
}

// The gradient of x, by the same weight. GPUs only.
inline Compute linear_backward(std::int64_t in, std::int64_t out) {
  return [=](Part& part) -> Results {
    const ops::Linear layer = ops::Linear(part.whole({out, in})).backward();
    return {{layer(part.cut({part.all, out}))}};
  };
}

// Attention.

enum class AttentionAxis { queries, sequences, items, heads };

/// Sizes of an attention. For that which is cut, part.all is taken.
struct AttentionSizes {
  std::int64_t queries = 20, keys = 20, sequences = 1, items = 2, heads = 2;
  std::int64_t channels = 72;
};

/// Arguments of an attention that is cut along an axis.
class AttentionCut {
 public:
  AttentionCut(Part& part, AttentionAxis axis, AttentionSizes sizes)
      : part_(part), axis_(axis), sizes_(sizes) {
    (axis == AttentionAxis::queries     ? sizes_.queries
     : axis == AttentionAxis::sequences ? sizes_.sequences
     : axis == AttentionAxis::items     ? sizes_.items
                                        : sizes_.heads) = part.all;
  }
  std::int64_t sequences() const {
    return axis_ == AttentionAxis::sequences ? part_.count : sizes_.sequences;
  }
  /// [sequence · query, batch, head, channel]
  Tensor queries() {
    return part_.cut(
        {sizes_.sequences * sizes_.queries, sizes_.items, sizes_.heads, sizes_.channels}, axis());
  }
  /// [sequence · key, batch, head, channel]
  Tensor keys() { return keys(false); }
  /// [sequence · key, batch, 2, head, channel]
  Tensor keys_values() { return keys(true); }
  /// The axis of queries and results that is cut.
  std::size_t axis() const {
    return axis_ == AttentionAxis::items ? 1 : axis_ == AttentionAxis::heads ? 2 : 0;
  }

 private:
  Tensor keys(bool with_values) {
    Shape shape{sizes_.sequences * sizes_.keys, sizes_.items, sizes_.heads, sizes_.channels};
    if (with_values) shape.insert(shape.begin() + 2, 2);
    if (axis_ == AttentionAxis::queries) return part_.whole(shape);
    return part_.cut(shape, axis_ == AttentionAxis::heads && with_values ? 3 : axis());
  }

  Part& part_;
  AttentionAxis axis_;
  AttentionSizes sizes_;
};

// All keys in one call, for which a GPU may have a fused kernel.
inline Compute attend(AttentionAxis axis, const AttentionSizes& sizes) {
  return [=](Part& part) -> Results {
    AttentionCut cut(part, axis, sizes);
    const Tensor q = cut.queries(), keys_values = cut.keys_values();
    return {{ops::attend(q, keys_values, 0.1F, cut.sequences()), cut.axis()}};
  };
}

inline Compute own_attention(AttentionAxis axis, const AttentionSizes& sizes) {
  return [=](Part& part) -> Results {
    AttentionCut cut(part, axis, sizes);
    ops::Attention attention(cut.queries(), 0.1F, cut.sequences());
    attention.add(cut.keys_values());
    return {{attention.finish(), cut.axis()}};
  };
}

// Of all tokens, with a bias for each head.
inline Results attention_by_heads(Part& part) {
  const Tensor qkv = part.cut({40, 2, 3, part.all, 24}, 3);
  const Tensor bias = part.cut({part.all, 40, 40}, 0, DType::float32);
  return {{ops::attention(qkv, 0.2F, bias), 2}};
}

inline Results attention_by_items(Part& part) {
  const Tensor qkv = part.cut({40, part.all, 3, 2, 24}, 1);
  return {{ops::attention(qkv, 0.2F, part.whole({2, 40, 40}, DType::float32)), 1}};
}

// There is at least one sequence.
inline Compute attention_forward(AttentionAxis axis, const AttentionSizes& sizes) {
  return [=](Part& part) -> Results {
    if (axis == AttentionAxis::sequences && part.count == 0) return {};
    AttentionCut cut(part, axis, sizes);
    const Tensor q = cut.queries(), k = cut.keys(), v = cut.keys();
    const auto [out, log_sum_exp] = ops::attention_forward(q, k, v, 0.1F, {}, cut.sequences());
    const std::int64_t items = q.shape(1), heads = q.shape(2);
    return {{out, cut.axis()},
            {log_sum_exp.reshape({cut.sequences(), items, heads, sizes.queries}), cut.axis()}};
  };
}

inline Compute attention_backward(AttentionAxis axis, const AttentionSizes& sizes) {
  return [=](Part& part) -> Results {
    if (axis == AttentionAxis::sequences && part.count == 0) return {};
    AttentionCut cut(part, axis, sizes);
    const Tensor q = cut.queries(), k = cut.keys(), v = cut.keys(), d = cut.queries();
    const std::int64_t sequences = cut.sequences();
    const auto forward = ops::attention_forward(q, k, v, 0.1F, {}, sequences);
    const auto gradients = ops::attention_backward(q, k, v, forward, d, 0.1F, {}, sequences);
    return {{gradients.q, cut.axis()}, {gradients.k, cut.axis()}, {gradients.v, cut.axis()}};
  };
}

// Convolutions. Parts without pixels are not computed.

// Rows of the result, with the rows of the image under them; all columns.
inline Compute convolution_rows(const ops::Window& window, std::int64_t enlarged) {
  return [=](Part& part) -> Results {
    if (part.count == 0) return {};
    const std::int64_t height = window.reach(part.all) - window.before - window.after;
    const std::int64_t above = part.first * window.stride - window.before;
    const std::int64_t from = std::max<std::int64_t>(0, above),
                       to = std::min(height, above + window.reach(part.count));
    const ops::Convolution convolution(part.whole({20, 24, window.kernel, window.kernel}),
                                       part.whole({20}), {}, window);
    const Tensor x = part.range({2, height, 70, 24}, 1, from, to - from, part.dtype());
    return {{convolution(x, {from, to - from, height},
                         {part.first * enlarged, part.count * enlarged, part.all * enlarged}),
             1}};
  };
}

// A box that is cut along rows or columns (axis 1 or 2): the part's own pixels in one piece and
// those beside it in others, as they are received from neighbours. Inner tiles first.
inline Compute convolution_pieces(std::size_t axis, std::int64_t out) {
  return [=](Part& part) -> Results {
    if (part.count == 0) return {};
    const std::int64_t other = 40, in = 16;
    const ops::Convolution convolution(part.whole({out, in, 3, 3, 3}), part.whole({out}));
    const auto box = [&](std::int64_t first, std::int64_t count) {
      return axis == 1 ? ops::ImageBox{first, count, 0, other}
                       : ops::ImageBox{0, other, first, count};
    };
    const auto image = [&] {
      const ops::ImageBox all = box(0, part.all);
      const Tensor x = part.whole({2, all.rows, all.columns, in}).on({});
      ops::Image cut{all.rows, all.columns, {}};
      const auto add = [&](std::int64_t first, std::int64_t count) {
        cut.pieces.push_back({box(first, count), slice(x, axis, first, count).on(part.device())});
      };
      const std::int64_t end = part.first + part.count;
      add(part.first, part.count);
      if (part.first > 0) add(part.first - 1, 1);
      if (end < part.all) add(end, 1);
      return cut;
    };
    const ops::ImageBox own = box(part.first, part.count);
    const ops::Image x = image(), previous = image();
    Tensor y = part.zeros({2, own.rows, own.columns, out});
    convolution.run(x, previous, 1, own, y, ops::Tiles::inner);
    convolution.run(x, previous, 1, own, y, ops::Tiles::outer);
    return {{y, axis}};
  };
}

// Frames, with the two before them. CPU only: GPUs get the same frames in every layout.
inline Results convolution_frames(Part& part) {
  if (part.count == 0) return {};
  const ops::Convolution convolution(part.whole({8, 16, 3, 3, 3}), part.whole({8}));
  const Tensor x = part.whole({part.all, 6, 9, 16});
  Tensor previous;
  if (part.first > 0) {
    previous = part.zeros({2, 6, 9, 16});
    for (std::int64_t i = 0; i < 2; ++i) {
      previous.rows(i, 1).copy_from(x.rows(std::max<std::int64_t>(0, part.first - 2 + i), 1));
    }
  }
  return {{convolution(x.rows(part.first, part.count), {0, 6, 6}, {0, 6, 6}, previous)}};
}

// Norms, gates and their gradients. Tokens: x [token, batch, channel], of which the first use other
// chunks of the tables, and are not rotated.

constexpr std::int64_t text_tokens = 20;

inline ops::FirstTokens first_tokens(const Part& part) {
  return {std::clamp<std::int64_t>(text_tokens - part.first, 0, part.count), 3};
}

// A part's rows of a table [token − text_tokens, channel] of the tokens after the first; none for
// an odd number of channels, which are not rotated.
inline Tensor rotations(Part& part, std::int64_t channels) {
  if (channels % 2 != 0) return {};
  const auto row = [](std::int64_t token) {
    return std::max<std::int64_t>(0, token - text_tokens);
  };
  const std::int64_t from = row(part.first), to = row(part.first + part.count);
  return part.range({part.all - text_tokens, channels}, 0, from, to - from, DType::float32);
}

inline Results layer_norm(Part& part, std::int64_t n) {
  return {{ops::layer_norm(part.cut({part.all, n}), part.whole({n}), part.whole({n}), 1e-5F)}};
}

inline Results modulated_layer_norm(Part& part, std::int64_t n) {
  const Tensor x = part.cut({part.all, 2, n}), weight = part.whole({n}), bias = part.whole({n});
  Tensor out = part.zeros(x.shape());
  ops::modulated_layer_norm(x, weight, bias, 1e-5F,
                            {part.whole({2, 6 * n}), 0, 1, first_tokens(part)}, out);
  return {{out}};
}

// Items of the batch have their own rows of the table.
inline Results modulated_layer_norm_of_items(Part& part, std::int64_t n) {
  const Tensor x = part.cut({7, part.all, n}, 1), weight = part.whole({n}), bias = part.whole({n});
  Tensor out = part.zeros(x.shape());
  ops::modulated_layer_norm(x, weight, bias, 1e-5F, {part.cut({part.all, 6 * n}), 0, 1, {3, 3}},
                            out);
  return {{out, 1}};
}

inline Results add_gated(Part& part, std::int64_t n) {
  Tensor x = part.cut({part.all, 2, n});
  const Tensor y = part.cut({part.all, 2, n});
  ops::add_gated(x, y, part.whole({2, 6 * n}), 2, first_tokens(part));
  return {{x}};
}

inline Results add_gated_and_norm(Part& part, std::int64_t n) {
  Tensor x = part.cut({part.all, 2, n});
  const Tensor y = part.cut({part.all, 2, n}), weight = part.whole({n}), bias = part.whole({n});
  const Tensor gates = part.whole({2, 6 * n}), table = part.whole({2, 6 * n});
  Tensor out = part.zeros(x.shape());
  ops::add_gated_and_norm(x, y, {gates, 2, first_tokens(part)}, weight, bias, 1e-5F,
                          {table, 0, 1, first_tokens(part)}, out);
  return {{x}, {out}};
}

inline Results layer_norm_backward(Part& part, std::int64_t n) {
  const Tensor x = part.cut({part.all, 2, n}), d = part.cut({part.all, 2, n}),
               weight = part.whole({n}), table = part.whole({2, 6 * n});
  Tensor dx = part.cut({part.all, 2, n});
  ops::layer_norm_backward(x, weight, 1e-5F, {table, 0, 1, first_tokens(part)}, d, dx);
  return {{dx}};
}

inline ops::HeadNorm head_norm(Part& part, std::int64_t channels) {
  return {part.whole({channels}, DType::float32), part.whole({channels}, DType::float32), 1e-6F};
}

inline Results normalise_and_rotate(Part& part) {
  Results results;
  for (const std::int64_t n : {9, 64, 72}) {
    Tensor x = part.cut({part.all, 2, 3, 3, n});
    const ops::HeadNorm norm = head_norm(part, n);
    const Tensor cosines = rotations(part, n), sines = rotations(part, n);
    ops::normalise_and_rotate(x, norm, cosines, sines, first_tokens(part).count);
    results.push_back({x});
  }
  return results;
}

inline Results normalise_and_rotate_heads(Part& part) {
  Tensor x = part.cut({30, 2, 3, part.all, 72}, 3);
  const ops::HeadNorm norm = head_norm(part, 72);
  const Tensor cosines = part.whole({25, 72}, DType::float32),
               sines = part.whole({25, 72}, DType::float32);
  ops::normalise_and_rotate(x, norm, cosines, sines, 5);
  return {{x, 3}};
}

inline Results norm_together_and_rotate(Part& part) {
  Results results;
  for (const std::int64_t n : {10, 64, 72}) {
    Tensor x = part.cut({part.all, 2, 2, 3, n});
    const Tensor cosines = part.cut({part.all, n}, 0, DType::float32),
                 sines = part.cut({part.all, n}, 0, DType::float32);
    ops::norm_together_and_rotate(x, part.whole({3 * n}, DType::float32), 1e-6F, cosines, sines);
    results.push_back({x});
  }
  return results;
}

inline Results norm_together_and_rotate_items(Part& part) {
  Tensor x = part.cut({30, part.all, 1, 3, 20}, 1);
  const Tensor table = part.whole({30, 20}, DType::float32);
  ops::norm_together_and_rotate(x, part.whole({60}, DType::float32), 1e-6F, table, table);
  return {{x, 1}};
}

inline Results normalise_and_rotate_backward(Part& part) {
  Results results;
  for (const std::int64_t n : {9, 64, 72}) {
    const Tensor x = part.cut({part.all, 2, 3, 3, n});
    Tensor d = part.cut({part.all, 2, 1, 3, n}), d_norm = part.zeros(d.shape());
    const ops::HeadNorm norm = head_norm(part, n);
    const Tensor cosines = rotations(part, n), sines = rotations(part, n);
    ops::normalise_and_rotate_backward(x, norm, cosines, sines, first_tokens(part).count, d,
                                       &d_norm);
    results.push_back({d});
    results.push_back({d_norm});
  }
  return results;
}

inline Results normalise_and_rotate_backward_heads(Part& part) {
  const Tensor x = part.cut({30, 2, 1, part.all, 72}, 3);
  Tensor d = part.cut({30, 2, 1, part.all, 72}, 3), d_norm = part.zeros(d.shape());
  const ops::HeadNorm norm = head_norm(part, 72);
  const Tensor cosines = part.whole({25, 72}, DType::float32),
               sines = part.whole({25, 72}, DType::float32);
  ops::normalise_and_rotate_backward(x, norm, cosines, sines, 5, d, &d_norm);
  return {{d, 3}, {d_norm, 3}};
}

// Of norm_together_and_rotate(): tables have the channels of one of three heads.
inline Results norm_together_backward(Part& part) {
  Results results;
  for (const std::int64_t n : {10, 64, 72}) {
    const Tensor x = part.cut({part.all, 2, 2, 1, 3 * n});
    Tensor d = part.cut({part.all, 2, 1, 1, 3 * n}), d_norm = part.zeros(d.shape());
    const Tensor cosines = part.cut({part.all, n}, 0, DType::float32),
                 sines = part.cut({part.all, n}, 0, DType::float32);
    ops::normalise_and_rotate_backward(x, {part.whole({3 * n}, DType::float32), {}, 1e-6F}, cosines,
                                       sines, 0, d, &d_norm);
    results.push_back({d});
    results.push_back({d_norm});
  }
  return results;
}

// Group norms: sums of parts are added; statistics are those of the whole image.

inline Results group_sums(Part& part, const Shape& image, std::size_t axis, std::int64_t cell) {
  return {{{}, 0, ops::group_sums(part.cut(image, axis), 4, cell)}};
}

inline ops::GroupStatistics group_statistics(Part& part) {
  return {part.whole({4}, DType::float32), part.whole({4}, DType::float32)};
}

inline Results group_norm(Part& part, const Shape& image, std::size_t axis) {
  const Tensor x = part.cut(image, axis), weight = part.whole({12}, DType::float32),
               bias = part.whole({12}, DType::float32);
  const ops::GroupStatistics statistics = group_statistics(part);
  return {{ops::group_norm(x, statistics, weight, bias, true), axis}};
}

// Two rows of pixels for each row of latents.
inline Results spatial_norm_silu(Part& part) {
  const Tensor x = part.cut({3, 2 * part.all, 10, 12}, 1);
  Tensor out = part.zeros(x.shape());
  ops::SpatialNorm norm;
  norm.statistics = group_statistics(part);
  norm.weight = part.whole({12}, DType::float32);
  norm.bias = part.whole({12}, DType::float32);
  norm.scale = part.cut({2, part.all, 5, 12}, 1);
  norm.shift = part.cut({2, part.all, 5, 12}, 1);
  norm.latent_frame = {0, 1, 1};
  ops::spatial_norm_silu(x, norm, out);
  return {{out, 1}};
}

// Elementwise ops and copies.

inline Results patchify(Part& part) {
  const Tensor latents = part.cut({2, 3, 2 * part.all, 10}, 2, DType::float32);
  return {{ops::patchify(latents, {1, 2, 2}, part.dtype()).reshape({2, part.count, 5, 12}), 1}};
}

inline Results unpatchify(Part& part) {
  const Tensor tokens = part.cut({2, part.all, 5, 2, 12}, 1).reshape({2 * part.count * 5, 2, 12});
  return {{ops::unpatchify(tokens, 1, {1, 2, 2}, {2, 3, 2 * part.count, 10}), 2}};
}

/// Calls f with two tensors [row, n], of which it may change the first, for each length of rows.
inline Compute elementwise(Tensor (*f)(Part&, Tensor x, const Tensor& y)) {
  return for_lengths([f](Part& part, std::int64_t n) -> Results {
    Tensor x = part.cut({part.all, n});
    return {{f(part, std::move(x), part.cut({part.all, n}))}};
  });
}

}  // namespace reelmesh::test
