// Products and sums over tokens. Tokens are added to a partial sum, which is added to the total
// after each block of tokens; both in float32 and in the order of tokens.
#include "ops/cuda/backward.hpp"
#include "ops/cuda/tensor_cores.cuh"
#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

constexpr int block_tokens = 512;

// Matrices of a product: a [token, m], b [token, n], out [m, n]. A block has a tile of `out`.
template <class T>
struct TokenProducts {
  const T *a, *b;
  float* out;
  int tokens, m, n;
  bool aligned;  // rows of a and b start at multiples of 8 elements and 16 bytes

  __device__ int first_row(int tile) const {
    return static_cast<int>(blockIdx.x) / ((n + tile - 1) / tile) * tile;
  }
  __device__ int first_column(int tile) const {
    return static_cast<int>(blockIdx.x) % ((n + tile - 1) / tile) * tile;
  }
  __device__ void store(int row, int column, float total) const {
    if (row < m && column < n) out[std::int64_t{row} * n + column] = total;
  }
  // Whether the partial sum ends with the token before `end`.
  __device__ bool block_ends(int end) const { return end % block_tokens == 0 || end >= tokens; }
};

// Without tensor cores: 16 × 16 threads have 4 × 4 elements each, and add tokens one by one.
struct FloatTile {
  static constexpr int size = 64, tokens = 16, own = 4, threads = 256;
};

__global__ void __launch_bounds__(FloatTile::threads) token_products_float(TokenProducts<float> p) {
  constexpr int size = FloatTile::size, tokens = FloatTile::tokens, own = FloatTile::own;
  __shared__ float left[tokens][size], right[tokens][size];
  const int thread = static_cast<int>(threadIdx.x);
  const int row = p.first_row(size), column = p.first_column(size);
  const int y = thread / (size / own) * own, x = thread % (size / own) * own;
  float totals[own][own] = {}, sums[own][own] = {};
  for (int first = 0; first < p.tokens; first += tokens) {
    for (int i = thread; i < tokens * size; i += FloatTile::threads) {
      const std::int64_t token = first + i / size;
      const int at = i % size;
      const bool there = token < p.tokens;
      left[i / size][at] = there && row + at < p.m ? p.a[token * p.m + row + at] : 0.0F;
      right[i / size][at] = there && column + at < p.n ? p.b[token * p.n + column + at] : 0.0F;
    }
    __syncthreads();
    for (int t = 0; t < tokens; ++t) {
      for (int i = 0; i < own; ++i) {
        for (int j = 0; j < own; ++j) {
          sums[i][j] = fmaf(left[t][y + i], right[t][x + j], sums[i][j]);
        }
      }
    }
    __syncthreads();
    if (!p.block_ends(first + tokens)) continue;
    for (int i = 0; i < own; ++i) {
      for (int j = 0; j < own; ++j) {
        totals[i][j] += sums[i][j];
        sums[i][j] = 0;
      }
    }
  }
  for (int i = 0; i < own; ++i) {
    for (int j = 0; j < own; ++j) p.store(row + y + i, column + x + j, totals[i][j]);
  }
}

// On tensor cores: 4 × 2 warps have 32 × 64 elements each, and add 16 tokens at a time. The next
// tokens are copied to shared memory meanwhile.
struct HalfTile {
  static constexpr int size = 128, tokens = 32, threads = 256, stages = 2;
  static constexpr int rows = 32, columns = 64;  // of a warp
  static constexpr int row_stride = half_row_stride<size>, matrix = tokens * row_stride;
  static constexpr std::int64_t shared_bytes = std::int64_t{2} * stages * 2 * matrix;
};

template <class T>
__global__ void __launch_bounds__(HalfTile::threads) token_products_half(TokenProducts<T> p) {
  using S = HalfTile;
  constexpr int stride = S::row_stride, row_tiles = S::rows / 16, column_tiles = S::columns / 8;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp_size;
  const int warp = thread / warp_size, row = warp / 2 * S::rows, column = warp % 2 * S::columns;
  const int first_row = p.first_row(S::size), first_column = p.first_column(S::size);
  auto* tiles = shared_memory<T>();  // [stage][a, b][token]
  const auto load_tokens = [&](int first, int stage) {
    T* into = tiles + 2 * stage * S::matrix;
    load_half_rows<S::size, S::tokens, S::threads>(p.a + first_row, p.m, first, p.tokens,
                                                   p.m - first_row, p.aligned, into);
    load_half_rows<S::size, S::tokens, S::threads>(p.b + first_column, p.n, first, p.tokens,
                                                   p.n - first_column, p.aligned, into + S::matrix);
  };
  float totals[row_tiles][column_tiles][4] = {}, sums[row_tiles][column_tiles][4] = {};
  load_tokens(0, 0);
  for (int first = 0, stage = 0; first < p.tokens; first += S::tokens, stage = 1 - stage) {
    wait_copies<0>();
    __syncthreads();  // these tokens have arrived, and all threads have used the previous ones
    if (first + S::tokens < p.tokens) load_tokens(first + S::tokens, 1 - stage);
    const T* left = tiles + 2 * stage * S::matrix + row;
    const T* right = tiles + (2 * stage + 1) * S::matrix + column;
#pragma unroll
    for (int k = 0; k < S::tokens; k += 16) {
      std::uint32_t a[row_tiles][4];
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        load_transposed(a[i],
                        left + (k + lane / 16 * 8 + lane % 8) * stride + 16 * i + lane / 8 % 2 * 8);
      }
#pragma unroll
      for (int j = 0; j < column_tiles; j += 2) {
        std::uint32_t b[4];
        load_transposed(b,
                        right + (k + lane / 8 % 2 * 8 + lane % 8) * stride + 8 * j + lane / 16 * 8);
#pragma unroll
        for (int i = 0; i < row_tiles; ++i) {
          mma<T>(sums[i][j], a[i], b[0], b[1]);
          mma<T>(sums[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
    if (!p.block_ends(first + S::tokens)) continue;
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          totals[i][j][e] += sums[i][j][e];
          sums[i][j][e] = 0;
        }
      }
    }
  }
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        p.store(first_row + row + 16 * i + g + e / 2 * 8,
                first_column + column + 8 * j + 2 * t + e % 2, totals[i][j][e]);
      }
    }
  }
}

constexpr int sum_threads = 128;

// A thread has a column of a block of tokens: the first `first` tokens have `first_blocks` of them.
template <class T>
__global__ void __launch_bounds__(sum_threads)
    sum_blocks(const T* a, const T* b, float* sums, std::int64_t tokens, std::int64_t first,
               std::uint32_t first_blocks, std::uint32_t n) {
  const std::uint32_t tiles = (n + sum_threads - 1) / sum_threads;
  const std::uint32_t block = blockIdx.x / tiles;
  const std::uint32_t column = blockIdx.x % tiles * sum_threads + threadIdx.x;
  if (column >= n) return;
  const bool early = block < first_blocks;
  const std::int64_t begin = early ? std::int64_t{block} * block_tokens
                                   : first + std::int64_t{block - first_blocks} * block_tokens;
  const std::int64_t limit = early ? first : tokens;
  const std::int64_t end = begin + block_tokens < limit ? begin + block_tokens : limit;
  double sum = 0;  // as on the CPU
  for (std::int64_t t = begin; t < end; ++t) {
    const float x = widen(a[t * n + column]);
    const float y = b == nullptr ? x : x * widen(b[t * n + column]);
    sum += y;
  }
  sums[std::int64_t{block} * n + column] = static_cast<float>(sum);
}

__global__ void __launch_bounds__(sum_threads)
    add_blocks(const float* sums, float* out, std::uint32_t first_blocks, std::uint32_t blocks,
               std::uint32_t n) {
  const std::uint32_t column = blockIdx.x * sum_threads + threadIdx.x;
  if (column >= n) return;
  for (std::uint32_t part = 0; part < 2; ++part) {
    float total = 0;
    const std::uint32_t end = part == 0 ? first_blocks : blocks;
    for (std::uint32_t i = part == 0 ? 0 : first_blocks; i < end; ++i) {
      total += sums[std::int64_t{i} * n + column];
    }
    out[std::int64_t{part} * n + column] = total;
  }
}

}  // namespace

Tensor token_products(const Tensor& a, const Tensor& b) {
  const Device device = a.device();
  require_tensor_cores(a.dtype(), device);
  const std::int64_t m = a.shape(1), n = b.shape(1);
  Tensor out = Tensor::empty({m, n}, DType::float32, device);
  visit_float(a.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *left = address<T>(a, device), *right = address<T>(b, device);
    const TokenProducts<T> p{left,
                             right,
                             address<float>(out, device),
                             static_cast<int>(narrow_index(a.shape(0))),
                             static_cast<int>(narrow_index(m)),
                             static_cast<int>(narrow_index(n)),
                             m % 8 == 0 && n % 8 == 0 && aligned(left) && aligned(right)};
    const auto run = [&](auto kernel, std::int64_t tile, int threads, std::int64_t shared_bytes) {
      launch({"token_products", device, blocks_for(m, tile) * blocks_for(n, tile), threads,
              shared_bytes},
             kernel, p);
    };
    if constexpr (std::is_same_v<T, float>) {
      run(token_products_float, FloatTile::size, FloatTile::threads, 0);
    } else {
      run(token_products_half<T>, HalfTile::size, HalfTile::threads, HalfTile::shared_bytes);
    }
  });
  return out;
}

Tensor token_sums(const Tensor& a, const Tensor& b, std::int64_t first) {
  const Device device = a.device();
  const std::int64_t tokens = a.shape(0), n = a.shape(1);
  const auto blocks_of = [](std::int64_t count) {
    return (count + block_tokens - 1) / block_tokens;
  };
  const std::int64_t first_blocks = blocks_of(first),
                     blocks = first_blocks + blocks_of(tokens - first);
  Tensor sums = Tensor::empty({blocks, n}, DType::float32, device);
  Tensor out = Tensor::empty({2, n}, DType::float32, device);
  visit_float(a.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const other = b.empty() ? nullptr : address<T>(b, device);
    launch({"token_sums", device, narrow_index(blocks) * blocks_for(n, sum_threads), sum_threads},
           sum_blocks<T>, address<T>(a, device), other, address<float>(sums, device), tokens, first,
           narrow_index(first_blocks), narrow_index(n));
  });
  launch({"token_sums_of_blocks", device, blocks_for(n, sum_threads), sum_threads}, add_blocks,
         static_cast<const float*>(address<float>(sums, device)), address<float>(out, device),
         narrow_index(first_blocks), narrow_index(blocks), narrow_index(n));
  return out;
}

}  // namespace reelmesh::gpu
