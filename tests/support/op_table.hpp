#pragma once
// The ops of lib/ops with what each may be cut along: tokens, heads, pixels. The parts must have
// the bits of the whole (op_parts.hpp); tests/ops checks it on the CPU, tests/ops/cuda on a GPU. An
// op without a row fails tests/house/check_op_table.py, which names those that need none.
#include "support/op_cuts.hpp"

namespace reelmesh::test {

/// real_sizes: sizes of released models where they matter, for a real GPU.
inline std::vector<OpCut> op_table(bool real_sizes) {
  using enum AttentionAxis;
  using ops::Activation;
  const auto size = [=](std::int64_t small, std::int64_t real) {
    return real_sizes ? real : small;
  };
  constexpr bool cpu = true, gpu = true;
  const AttentionSizes few{.queries = 70, .keys = 50}, few_keys{.keys = 140},
      many_keys{.keys = 530};
  return {
      {"Linear", "rows", 300, linear(24, 40, Activation::gelu_tanh)},
      // To the emulated GPU's products no size is special.
      {"Linear", "rows of several tiles", 160, linear(512, 400, Activation::silu), cpu, real_sizes},
      {"Linear", "rows of long sums", 100, linear(4200, 40, Activation::none), cpu, real_sizes},
      {"Linear", "many rows", 9000, linear(size(72, 1920), size(40, 1920), Activation::gelu_tanh)},
      {"Linear", "many rows of long sums", size(300, 9000),
       linear(size(136, 7680), size(72, 1920), Activation::none)},
      {"Linear", "rows of a gradient", 2500, linear_backward(size(520, 1920), size(24, 7680)),
       !cpu},
      // Heads of more than 128 channels have other kernels on GPUs.
      {"Attention", "queries", size(129, 4000),
       own_attention(AttentionAxis::queries, {.keys = size(140, 4000)})},
      {"Attention", "queries of wide heads", 129,
       own_attention(AttentionAxis::queries, {.keys = 140, .channels = 136})},
      {"Attention", "sequences", 5, own_attention(sequences, few_keys)},
      {"Attention", "sequences of wide heads", 5,
       own_attention(sequences, {.keys = 30, .channels = 136})},
      {"Attention", "items", 5, own_attention(items, few_keys)},
      {"Attention", "heads", 5, own_attention(heads, few_keys)},
      {"Attention", "heads of 16 channels", 5, own_attention(heads, {.keys = 140, .channels = 16})},
      // CPUs pack keys in other ways for many pairs of item and head (Attention::pairs_packed).
      {"Attention", "sequences of many pairs", 16,
       own_attention(sequences, {.keys = 100, .items = 8, .channels = 16}), cpu, !gpu},
      {"Attention", "items of many pairs", 43,
       own_attention(items, {.queries = 4, .keys = 600, .sequences = 3, .channels = 16}), cpu,
       !gpu},
      {"Attention", "sequences of many keys", 3,
       own_attention(sequences, {.queries = 70, .keys = 1100, .channels = 16}), cpu, !gpu},
      {"attend", "queries", size(129, 3000),
       attend(AttentionAxis::queries, {.keys = size(530, 17776)})},
      {"attend", "sequences", 5, attend(sequences, many_keys)},
      {"attend", "items", 5, attend(items, many_keys)},
      {"attend", "heads", 5, attend(heads, many_keys)},
      {"attention", "heads", 5, attention_by_heads},
      {"attention", "items", 5, attention_by_items},
      {"attention_forward", "sequences", 5, attention_forward(sequences, few)},
      {"attention_forward", "items", 5, attention_forward(items, few)},
      {"attention_forward", "heads", 5, attention_forward(heads, few)},
      {"attention_backward", "sequences", 5, attention_backward(sequences, few)},
      {"attention_backward", "items", 5, attention_backward(items, few)},
      {"attention_backward", "heads", 5, attention_backward(heads, few)},
      {"attention_backward", "heads of many keys", 5,
       attention_backward(heads, {.queries = 600, .keys = 530, .items = 1, .channels = 16}), cpu,
       !gpu},
      {"Convolution", "rows", 70, convolution_rows({}, 1)},
      {"Convolution", "rows of an enlarged image", 40, convolution_rows({}, 2)},
      {"Convolution", "rows, stride 2", 40, convolution_rows({3, 2, 0, 1}, 1)},
      {"Convolution", "rows in pieces", 70, convolution_pieces(1, size(12, 128))},
      {"Convolution", "columns in pieces", 70, convolution_pieces(2, size(12, 128))},
      {"Convolution", "frames", 7, convolution_frames, cpu, !gpu},
      {"rms_norm", "rows", 129, for_lengths([](Part& part, std::int64_t n) -> Results {
         return {{ops::rms_norm(part.cut({part.all, n}), part.whole({n}), 1e-6F)}};
       })},
      {"layer_norm", "rows", 129, for_lengths(layer_norm)},
      {"change_sums", "rows", 129, for_lengths([](Part& part, std::int64_t n) -> Results {
         const Tensor x = part.cut({part.all, n});
         return {{ops::change_sums(x, part.cut({part.all, n}))}};
       })},
      {"modulated_layer_norm", "tokens", 129, for_lengths(modulated_layer_norm)},
      {"modulated_layer_norm", "items", 5, for_lengths(modulated_layer_norm_of_items)},
      {"add_gated", "tokens", 129, for_lengths(add_gated)},
      {"add_gated_and_norm", "tokens", 129, for_lengths(add_gated_and_norm)},
      {"layer_norm_backward", "tokens", 129, for_lengths(layer_norm_backward)},
      {"gated", "tokens", 129, for_lengths([](Part& part, std::int64_t n) -> Results {
         const Tensor d = part.cut({part.all, 2, n});
         return {{ops::gated(d, {part.whole({2, 6 * n}), 2, first_tokens(part)})}};
       })},
      {"normalise_and_rotate", "tokens", 129, normalise_and_rotate},
      {"normalise_and_rotate", "heads", 5, normalise_and_rotate_heads},
      {"norm_together_and_rotate", "tokens", 129, norm_together_and_rotate},
      {"norm_together_and_rotate", "items", 5, norm_together_and_rotate_items},
      {"normalise_and_rotate_backward", "tokens", 129, normalise_and_rotate_backward},
      {"normalise_and_rotate_backward", "heads", 5, normalise_and_rotate_backward_heads},
      {"normalise_and_rotate_backward", "tokens of all heads as one", 129, norm_together_backward},
      {"group_sums", "rows of cells", 35,
       [](Part& part) {
         return group_sums(part, {3, 2 * part.all, 12, 32}, 1, 2);
       }},
      {"group_sums", "columns of cells", 35,
       [](Part& part) {
         return group_sums(part, {3, 12, 4 * part.all, 32}, 2, 4);
       }},
      {"group_norm", "frames", 5,
       [](Part& part) {
         return group_norm(part, {part.all, 9, 7, 12}, 0);
       }},
      {"group_norm", "rows", 70,
       [](Part& part) {
         return group_norm(part, {2, part.all, 7, 12}, 1);
       }},
      {"group_norm", "columns", 70,
       [](Part& part) {
         return group_norm(part, {2, 7, part.all, 12}, 2);
       }},
      {"spatial_norm_silu", "rows of latents", 35, spatial_norm_silu},
      {"token_products", "columns of a", 140,
       [](Part& part) -> Results {
         const Tensor a = part.cut({540, part.all}, 1);
         return {{ops::token_products(a, part.whole({540, 70}))}};
       }},
      {"token_products", "columns of b", 140,
       [](Part& part) -> Results {
         const Tensor a = part.whole({540, 70});
         return {{ops::token_products(a, part.cut({540, part.all}, 1)), 1}};
       }},
      {"token_sums", "columns", 300,
       [](Part& part) -> Results {
         const Tensor a = part.cut({540, part.all}, 1), b = part.cut({540, part.all}, 1);
         return {{ops::token_sums(a, b, 40), 1}, {ops::token_sums(a, {}, 40), 1}};
       }},
      {"add", "rows", 129, elementwise([](Part&, Tensor x, const Tensor& y) {
         ops::add(x, y);
         return x;
       })},
      {"multiply", "rows", 129,
       elementwise([](Part&, Tensor x, const Tensor& y) { return ops::multiply(x, y); })},
      {"average", "rows", 129, elementwise([](Part& part, Tensor x, const Tensor& y) {
         Tensor out = part.zeros(x.shape());
         ops::average(x, y, out);
         return out;
       })},
      {"silu_backward", "rows", 129,
       [](Part& part) -> Results {
         const Tensor x = part.cut({part.all, 37}, 0, DType::float32);
         return {{ops::silu_backward(x, part.cut({part.all, 37}, 0, DType::float32))}};
       },
       cpu, !gpu},
      {"silu", "rows", 129,
       elementwise([](Part&, Tensor x, const Tensor&) { return ops::silu(x); })},
      {"gelu", "rows", 129,
       elementwise([](Part&, Tensor x, const Tensor&) { return ops::gelu(x); })},
      {"scaled", "rows", 129,
       elementwise([](Part&, Tensor x, const Tensor&) { return ops::scaled(x, 5.4901F); })},
      {"dropped", "rows", 129, for_lengths([](Part& part, std::int64_t n) -> Results {
         std::vector<std::int32_t> rows;
         for (std::int64_t i = 0; i < part.count; ++i) {
           rows.push_back(static_cast<std::int32_t>(3 * (part.first + i)));
         }
         const Tensor numbers = Tensor::of<std::int32_t>(rows, {part.count}).on(part.device());
         return {{ops::dropped(part.cut({part.all, n}), {0.4, 9, n}, numbers)}};
       })},
      {"dropped", "columns", 300,
       [](Part& part) -> Results {
         const Tensor x = part.cut({37, part.all}, 1);
         return {{ops::dropped(x, {0.4, 9, part.all}, {}, part.first), 1}};
       }},
      {"gelu_tanh", "rows", 129,
       elementwise([](Part&, Tensor x, const Tensor&) { return ops::gelu_tanh(x); })},
      {"gelu_tanh_backward", "rows", 129, elementwise([](Part&, Tensor x, const Tensor& y) {
         ops::gelu_tanh_backward(y, x);
         return x;
       })},
      {"gelu_backward", "rows", 129, elementwise([](Part&, Tensor x, const Tensor& y) {
         ops::gelu_backward(y, x);
         return x;
       })},
      {"add_table", "tokens", 129, for_lengths([](Part& part, std::int64_t n) -> Results {
         Tensor x = part.cut({part.all, 2, n});
         ops::add_table(x, part.cut({part.all, n}));
         return {{x}};
       })},
      {"repeat_for_batch", "tokens", 129, for_lengths([](Part& part, std::int64_t n) -> Results {
         Tensor out = part.zeros({part.count, 4, n});
         ops::repeat_for_batch(part.cut({part.all, 2, n}), out);
         return {{out}};
       })},
      {"join_batches", "tokens", 129, for_lengths([](Part& part, std::int64_t n) -> Results {
         const std::vector<Tensor> items{part.cut({part.all, 2, n}), part.cut({part.all, 1, n})};
         return {{ops::join_batches(items)}};
       })},
      {"join_rows", "items", 5,
       [](Part& part) -> Results {
         const std::vector<Tensor> parts{part.cut({3, part.all, 7}, 1),
                                         part.cut({4, part.all, 7}, 1)};
         return {{ops::join_rows(parts), 1}};
       }},
      {"row_range", "items", 5,
       [](Part& part) -> Results {
         return {{ops::row_range(part.cut({9, part.all, 7}, 1), 2, 6), 1}};
       }},
      {"as_rows", "tokens", 129, for_lengths([](Part& part, std::int64_t n) -> Results {
         return {{ops::as_rows(part.cut({part.all, 2, n}))}};
       })},
      {"columns", "rows", 129,
       elementwise([](Part&, Tensor x, const Tensor&) { return ops::columns(x, 3, 20); })},
      {"set_columns", "rows", 129, elementwise([](Part&, Tensor x, const Tensor& y) {
         ops::set_columns(x, 3, ops::columns(y, 1, 20));
         return x;
       })},
      {"row_sum", "columns", 300,
       [](Part& part) -> Results {
         return {{ops::row_sum(part.cut({70, part.all}, 1, DType::float32)), 1}};
       },
       cpu, !gpu},
      {"numbers", "rows", 129,
       elementwise([](Part&, Tensor x, const Tensor&) { return ops::numbers(x); })},
      {"converted", "rows", 129, elementwise([](Part& part, Tensor x, const Tensor&) {
         return ops::converted(x,
                               part.dtype() == DType::float32 ? DType::bfloat16 : DType::float32);
       })},
      {"first_part", "tokens", 129, for_lengths([](Part& part, std::int64_t n) -> Results {
         return {{ops::first_part(part.cut({part.all, 2, 3, 1, n}))}};
       })},
      {"first_part", "heads", 5,
       [](Part& part) -> Results {
         return {{ops::first_part(part.cut({30, 2, 3, part.all, 9}, 3)), 3}};
       }},
      {"patchify", "rows", 35, patchify},
      {"unpatchify", "rows", 35, unpatchify},
      {"channels_to_frames", "frames", 5,
       [](Part& part) -> Results {
         return {{ops::channels_to_frames(part.cut({part.all, 5, 7, 12}))}};
       }},
      {"add_folded", "frames", 5,
       [](Part& part) -> Results {
         Tensor small = part.cut({part.all, 3, 4, 6});
         ops::add_folded(small, part.cut({2 * part.all, 6, 8, 3}), {.frames = 2, .side = 2});
         return {{small}};
       }},
      {"add_unfolded", "frames", 5,
       [](Part& part) -> Results {
         Tensor large = part.cut({2 * part.all, 6, 8, 3});
         ops::add_unfolded(large, part.cut({part.all, 3, 4, 6}), {.frames = 2, .side = 2});
         return {{large}};
       }},
      {"to_pixels", "rows", 70,
       [](Part& part) -> Results {
         return {{ops::to_pixels(part.cut({2, part.all, 7, 3}, 1)), 1}};
       }},
  };
}

}  // namespace reelmesh::test
