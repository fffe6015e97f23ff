#pragma once
// Operations of known work, and the spans that they leave at Level::ops.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "ops/attention.hpp"
#include "ops/attention_backward.hpp"
#include "ops/convolution.hpp"
#include "ops/group_norm.hpp"
#include "ops/linear.hpp"
#include "ops/norm.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::test {

struct KnownOperation {
  std::string name;
  std::int64_t flops, bytes;  ///< of its span
  std::function<void()> run;
};

/// One or more of each kind. Their tensors are made here, on `device`.
inline std::vector<KnownOperation> known_operations(Device device, DType dtype) {
  const auto random = [&](const Shape& shape) { return random_tensor(shape, 1, dtype).on(device); };
  const auto floats = [&](const Shape& shape) { return random_tensor(shape, 2).on(device); };
  const std::int64_t size = size_of(dtype);
  std::vector<KnownOperation> all;
  // 20 rows, 24 inputs, 16 outputs.
  all.push_back(
      {"product", 2 * 20 * 24 * 16, (20 * 24 + 24 * 16 + 20 * 16) * size,
       [w = ops::Linear(random({16, 24}), random({16})), x = random({20, 24})] { w(x); }});
  // 2 sequences of 5 queries and 7 keys, 3 heads of 8 channels.
  const std::int64_t queries = 2 * 5 * 3 * 8, keys = 2 * 7 * 3 * 8;
  all.push_back({"attention", 4 * queries * 7, (2 * queries + 2 * keys) * size,
                 [q = random({10, 1, 3, 8}), kv = random({14, 1, 2, 3, 8})] {
                   ops::attend(q, kv, 0.5F, 2);
                 }});
  // 4 tokens, 2 items, 3 heads of 8 channels, with a bias.
  all.push_back({"attention", 4 * (4 * 2 * 3 * 8) * 4, 4 * (4 * 2 * 3 * 8) * size + 3 * 4 * 4 * 4,
                 [qkv = random({4, 2, 3, 3, 8}), bias = floats({3, 4, 4})] {
                   ops::attention(qkv, 1.0F, bias);
                 }});
  // The same without a bias, for training: also [item · head, token] logarithms.
  const std::int64_t one = 4 * 2 * 3 * 8, logarithms = 2 * 3 * 4 * 4;
  const Tensor x = random({4, 2, 3, 8});
  all.push_back({"attention", 4 * one * 4, 4 * one * size + logarithms,
                 [x] { ops::attention_forward(x, x, x, 1.0F); }});
  const Tensor kept = floats({2 * 3, 4});
  all.push_back({"attention_backward", 10 * one * 4, 8 * one * size + logarithms, [x, kept] {
                   ops::attention_backward(x, x, x, {x, kept}, x, 1.0F);
                 }});
  // 2 frames of 9 × 21 pixels after 2 others, 3 → 5 channels.
  const ops::ImageBox box{0, 9, 0, 21};
  all.push_back(
      {"convolution", std::int64_t{2} * 2 * (9 * 21) * 5 * 3 * 27,
       ((2 + 2) * 9 * 21 * 3 + 5 * 3 * 27 + 2 * 9 * 21 * 5) * size,
       [c = ops::Convolution(random({5, 3, 3, 3, 3}), random({5})),
        x = ops::Image{9, 21, {{box, random({2, 9, 21, 3})}}},
        before = ops::Image{9, 21, {{box, random({2, 9, 21, 3})}}}, out = random({2, 9, 21, 5}),
        box]() mutable { c.run(x, before, 1, box, out, ops::Tiles::all); }});
  // The same image enlarged, without frames before it: a convolution of frames.
  const ops::ImageBox large{0, 18, 0, 42};
  all.push_back(
      {"convolution", std::int64_t{2} * 2 * (18 * 42) * 5 * 3 * 9,
       (2 * 9 * 21 * 3 + 5 * 3 * 9 + 2 * 18 * 42 * 5) * size,
       [c = ops::Convolution(random({5, 3, 3, 3}), random({5})),
        x = ops::Image{9, 21, {{box, random({2, 9, 21, 3})}}}, out = random({2, 18, 42, 5}),
        large]() mutable { c.run(x, {}, 2, large, out, ops::Tiles::all); }});
  const std::int64_t rows = 6 * 2, n = 16, x_bytes = rows * n * size;
  all.push_back({"norm", 4 * rows * n, 2 * x_bytes + n * size,
                 [x = random({6, 2, 16}), w = random({16})] { ops::rms_norm(x, w, 1e-6F); }});
  all.push_back({"norm", 8 * rows * n, 2 * x_bytes + 2 * n * size,
                 [x = random({6, 2, 16}), w = random({16}), b = random({16})] {
                   ops::layer_norm(x, w, b, 1e-6F);
                 }});
  all.push_back({"norm", 11 * rows * n, 2 * x_bytes + 2 * n * size + 2 * 2 * n * size,
                 [x = random({6, 2, 16}), w = random({16}), b = random({16}),
                  table = random({2, 96}), out = random({6, 2, 16})]() mutable {
                   ops::modulated_layer_norm(x, w, b, 1e-6F, {table, 0, 1, {}}, out);
                 }});
  // 6 tokens, of which 2 are not rotated; 1 item, 3 parts, 2 heads of 8 channels.
  all.push_back({"norm", (8 * 6 + 3 * 4) * 2 * 8, 2 * 6 * 2 * 8 * size + (2 * 8 + 2 * 4 * 8) * 4,
                 [x = random({6, 1, 3, 2, 8}), w = floats({8}), b = floats({8}),
                  table = floats({4, 8})]() mutable {
                   ops::normalise_and_rotate(x, {w, b}, table, table, 2);
                 }});
  // Part 0 of 2, 6 tokens of one item, 2 heads of 8 channels.
  all.push_back({"norm", (4 + 3) * 6 * 2 * 8, 2 * 6 * 2 * 8 * size + (2 * 8 + 2 * 6 * 8) * 4,
                 [x = random({6, 1, 2, 2, 8}), w = floats({16}), table = floats({6, 8})]() mutable {
                   ops::norm_together_and_rotate(x, w, 1e-6F, table, table);
                 }});
  const ops::GroupStatistics statistics{Tensor::zeros({2}, DType::float32).on(device),
                                        Tensor::zeros({2}, DType::float32).on(device)};
  const std::int64_t image = 2 * 4 * 6 * 8;
  all.push_back({"norm", 3 * image, image * size,
                 [x = random({2, 4, 6, 8})] { ops::group_statistics(x, 2, 1, 1e-6); }});
  all.push_back({"norm", 6 * image, 2 * image * size + 2 * 8 * 4,
                 [x = random({2, 4, 6, 8}), w = floats({8}), b = floats({8}), statistics] {
                   ops::group_norm(x, statistics, w, b, true);
                 }});
  all.push_back(
      {"norm", 8 * image, 2 * image * size + 2 * 8 * 4 + 2 * 2 * 2 * 3 * 8 * size,
       [x = random({2, 4, 6, 8}), out = random({2, 4, 6, 8}),
        norm = ops::SpatialNorm{statistics,
                                floats({8}),
                                floats({8}),
                                random({2, 2, 3, 8}),
                                random({2, 2, 3, 8}),
                                {0, 1}}]() mutable { ops::spatial_norm_silu(x, norm, out); }});
  return all;
}

/// The recorder's spans are those of the operations, in their order, from `first` on.
inline void expect_operation_spans(const std::vector<KnownOperation>& operations,
                                   std::size_t first = 0) {
  const std::vector<trace::Span>& spans = trace::recorder().spans;
  ASSERT_GE(spans.size(), first + operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const trace::Span& span = spans[first + i];
    EXPECT_EQ(span.name, operations[i].name) << "operation " << i;
    EXPECT_STREQ(span.lane, "compute");
    EXPECT_EQ(span.flops, operations[i].flops) << operations[i].name << ", operation " << i;
    EXPECT_EQ(span.memory_bytes, operations[i].bytes) << operations[i].name << ", operation " << i;
    EXPECT_GE(span.duration_ns, 0);
  }
}

/// Records at Level::ops from here to the end of its scope.
struct TracedOperations {
  TracedOperations() {
    trace::recorder() = {};
    trace::recorder().level = trace::Level::ops;
  }
  ~TracedOperations() { trace::recorder() = {}; }
  TracedOperations(const TracedOperations&) = delete;
  TracedOperations& operator=(const TracedOperations&) = delete;
};

}  // namespace reelmesh::test
