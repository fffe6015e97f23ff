#include "ops/cuda/attention_wide.hpp"
#include "tensor/cuda/kernel.cuh"

namespace reelmesh::gpu {
namespace {

constexpr int rows_of_block = 8;  // one row per warp

// row ← softmax(scale·row + bias), rows of n elements.
__global__ void __launch_bounds__(rows_of_block* warp_size)
    softmax_of_rows(float* scores, const float* bias, std::int64_t rows, std::int64_t n,
                    float scale) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t at =
      std::int64_t{blockIdx.x} * rows_of_block + static_cast<int>(threadIdx.x) / warp_size;
  if (at >= rows) return;
  float* row = scores + at * n;
  const float* added = bias == nullptr ? nullptr : bias + at * n;
  float largest = -INFINITY;
  for (std::int64_t i = lane; i < n; i += warp_size) {
    row[i] = scale * row[i] + (added == nullptr ? 0.0F : added[i]);
    largest = fmaxf(largest, row[i]);
  }
  for (int mask = warp_size / 2; mask > 0; mask /= 2) {
    largest = fmaxf(largest, shuffle_xor(largest, mask));
  }
  float sum = 0;
  for (std::int64_t i = lane; i < n; i += warp_size) {
    row[i] = expf(row[i] - largest);
    sum += row[i];
  }
  sum = warp_sum(sum);
  for (std::int64_t i = lane; i < n; i += warp_size) row[i] = row[i] / sum;
}

}  // namespace

void softmax_rows(Tensor& scores, float scale, const Tensor& bias) {
  const Device device = scores.device();
  const std::int64_t rows = scores.shape(0), n = scores.shape(1);
  const float* added = bias.empty() ? nullptr : address<float>(bias, device);
  launch({"softmax_rows", device, blocks_for(rows, rows_of_block), rows_of_block * warp_size},
         softmax_of_rows, address<float>(scores, device), added, rows, n, scale);
}

}  // namespace reelmesh::gpu
