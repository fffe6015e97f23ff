// Launches the kernels of attention's gradients: one kernel for those of keys and values, another
// one for those of queries.
#include <vector>

#include "ops/attention_backward.hpp"
#include "ops/cuda/attention_backward_float.cuh"
#include "ops/cuda/attention_backward_half.cuh"
#include "ops/cuda/ops.hpp"

namespace reelmesh::gpu {
namespace {

constexpr int rows_of_block = 8;  // one row per warp

// Σ x·y of each row; x, y: [sequence, token, head, channel]. → [sequence, head, token].
template <class T>
__global__ void __launch_bounds__(rows_of_block* warp_size)
    dot_rows(const T* x, const T* y, float* out, std::int64_t rows, int tokens, int heads,
             int channels) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t row =
      std::int64_t{blockIdx.x} * rows_of_block + static_cast<int>(threadIdx.x) / warp_size;
  if (row >= rows) return;
  float sum = 0;
  for (int c = lane; c < channels; c += warp_size) {
    sum = fmaf(widen(x[row * channels + c]), widen(y[row * channels + c]), sum);
  }
  sum = warp_sum(sum);
  const std::int64_t token = row / heads, pair = token / tokens * heads + row % heads;
  if (lane == 0) out[pair * tokens + token % tokens] = sum;
}

// A kernel with the own rows of a block and its shared memory.
template <class T>
struct BackwardKernel {
  void (*run)(BackwardArguments<T>);
  int rows;
  std::int64_t shared_bytes;
};
template <class T>
struct BackwardKernels {
  std::vector<BackwardKernel<T>> of_keys;  // and of values
  BackwardKernel<T> of_queries;
};

template <int D>
BackwardKernels<float> float_kernels() {
  using S = FloatBackward<D>;
  return {{{attend_backward_float<D, true>, S::size, S::shared_bytes}},
          {attend_backward_float<D, false>, S::size, S::shared_bytes}};
}

// M: as HalfBackward, as registers allow.
template <class T, int D, int M, Gradients G>
BackwardKernel<T> half_kernel() {
  using S = HalfBackward<D, M, G>;
  return {attend_backward_half<T, D, M, G>, S::rows, S::shared_bytes};
}

template <class T>
BackwardKernels<T> kernels_for(int channels) {
  if constexpr (std::is_same_v<T, float>) {
    return channels <= 64 ? float_kernels<64>() : float_kernels<128>();
  } else {
    using enum Gradients;
    if (channels <= 64) {
      return {{half_kernel<T, 64, 1, of_keys_and_values>()}, half_kernel<T, 64, 2, of_queries>()};
    }
    if (channels <= 80) {
      return {{half_kernel<T, 80, 1, of_keys_and_values>()}, half_kernel<T, 80, 1, of_queries>()};
    }
    return {{half_kernel<T, 128, 1, of_keys>(), half_kernel<T, 128, 1, of_values>()},
            half_kernel<T, 128, 1, of_queries>()};
  }
}

}  // namespace

void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                        const ops::AttentionForward& forward, const Tensor& d_out, float scale,
                        std::int64_t sequences, ops::AttentionGradients& gradients) {
  const Device device = q.device();
  require_tensor_cores(q.dtype(), device);
  const int queries = static_cast<int>(q.shape(0) / sequences),
            keys = static_cast<int>(k.shape(0) / sequences),
            channels = static_cast<int>(q.shape(3)),
            heads = static_cast<int>(q.shape(1) * q.shape(2));
  Tensor delta = Tensor::empty(forward.log_sum_exp.shape(), DType::float32, device);
  visit_float(q.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto at = [&](const Tensor& x) { return address<T>(x, device); };
    launch({"products with the gradient", device, blocks_for(q.numel() / channels, rows_of_block),
            rows_of_block * warp_size},
           dot_rows<T>, at(d_out), at(forward.out), address<float>(delta, device),
           q.numel() / channels, queries, heads, channels);
    BackwardArguments<T> p{at(k),
                           at(v),
                           at(q),
                           at(d_out),
                           address<float>(forward.log_sum_exp, device),
                           address<float>(delta, device),
                           address<T>(gradients.k, device),
                           address<T>(gradients.v, device),
                           keys,
                           queries,
                           heads,
                           channels,
                           scale,
                           scale * log2_e,
                           channels % 8 == 0 && aligned(at(k)) && aligned(at(v)) &&
                               aligned(at(q)) && aligned(at(d_out))};
    const auto run = [&](const char* name, const BackwardKernel<T>& kernel) {
      constexpr int threads = 128;
      launch({name, device, blocks_for(p.own_tokens, kernel.rows) * sequences * heads, threads,
              kernel.shared_bytes},
             kernel.run, p);
    };
    const BackwardKernels<T> kernels = kernels_for<T>(channels);
    for (const BackwardKernel<T>& kernel : kernels.of_keys) run("gradients of keys", kernel);
    std::swap(p.own, p.other);
    std::swap(p.own_factor, p.other_factor);
    std::swap(p.own_tokens, p.other_tokens);
    p.d_own = address<T>(gradients.q, device);
    p.d_own_factor = nullptr;
    run("gradients of queries", kernels.of_queries);
  });
}

}  // namespace reelmesh::gpu
