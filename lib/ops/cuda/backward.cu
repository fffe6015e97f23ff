// Backward passes of norms and activations. A warp has one row; sums of a row have an order that
// depends on its length alone.
#include "ops/cuda/backward.hpp"
#include "ops/index_math.hpp"
#include "ops/math.hpp"
#include "ops/pointwise_functions.hpp"
#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

constexpr int threads = 128, warps = threads / warp_size;

// What a norm's gradient needs of its row: with g = d·weight of the modulated result,
// dx = rstd·(g − shift − normalised·slope).
struct RowFactors {
  float mean, rstd, shift, slope;
  __device__ float gradient(float x, float g) const {
    return ((g - shift) - (x - mean) * rstd * slope) * rstd;
  }
};

// x(i), g(i): values of the row. All lanes of the warp call it.
template <class X, class G>
__device__ RowFactors row_factors(std::uint32_t n, bool centred, float eps, const X& x,
                                  const G& g) {
  const std::uint32_t lane = threadIdx.x % warp_size;
  const auto count = static_cast<float>(n);
  RowFactors row{};
  if (centred) {
    float sum = 0;
    for (std::uint32_t i = lane; i < n; i += warp_size) sum += x(i);
    row.mean = warp_sum(sum) / count;
  }
  float squares = 0;
  for (std::uint32_t i = lane; i < n; i += warp_size) {
    const float difference = x(i) - row.mean;
    squares = fmaf(difference, difference, squares);
  }
  row.rstd = 1.0F / sqrtf(warp_sum(squares) / count + eps);
  float sum = 0, products = 0;
  for (std::uint32_t i = lane; i < n; i += warp_size) {
    sum += g(i);
    products = fmaf(g(i), (x(i) - row.mean) * row.rstd, products);
  }
  const float all = warp_sum(sum);
  row.shift = centred ? all / count : 0.0F;
  row.slope = warp_sum(products) / count;
  return row;
}

template <class T>
struct LayerNormBackward {
  const T *x, *d;
  T* dx;
  Numbers<T> weight, table;
  std::int64_t table_elements, scale, later;  ///< later: of the chunks of the first tokens
  std::uint32_t table_rows, batch, first_tokens, n, rows;
  float eps;
};

template <class T>
__global__ void __launch_bounds__(threads) layer_norm_rows(LayerNormBackward<T> p) {
  const std::uint32_t row = blockIdx.x * warps + threadIdx.x / warp_size;
  if (row >= p.rows) return;  // the whole warp
  const std::int64_t begin = std::int64_t{row} * p.n;
  const std::int64_t scale = row % p.batch % p.table_rows * p.table_elements + p.scale +
                             (row / p.batch < p.first_tokens ? p.later : 0);
  const auto x = [&](std::uint32_t i) { return widen(p.x[begin + i]); };
  const auto g = [&](std::uint32_t i) {
    float weight[1], s[1] = {0.0F};
    p.weight.template load<1>(i, weight);
    if (!p.table.none()) p.table.template load<1>(scale + i, s);
    return widen(p.d[begin + i]) * (1.0F + s[0]) * weight[0];
  };
  const RowFactors factors = row_factors(p.n, true, p.eps, x, g);
  for (std::uint32_t i = threadIdx.x % warp_size; i < p.n; i += warp_size) {
    p.dx[begin + i] = narrow<T>(widen(p.dx[begin + i]) + factors.gradient(x(i), g(i)));
  }
}

template <class T>
struct HeadsBackward {
  const T* x;
  T *d, *d_norm;                          ///< d_norm: or null
  const float *weight, *cosines, *sines;  ///< cosines, sines: or null
  std::uint32_t batch, parts, heads, n, unrotated, rows;
  std::uint32_t angles;  ///< channels of cosines and sines
  bool centred;
  float eps;
};

template <class T>
__global__ void __launch_bounds__(threads) head_rows(HeadsBackward<T> p) {
  const std::uint32_t row = blockIdx.x * warps + threadIdx.x / warp_size;
  if (row >= p.rows) return;
  const std::uint32_t item = row / p.heads, head = row - item * p.heads, token = item / p.batch;
  const T* const row_x = p.x + (std::int64_t{item} * p.parts * p.heads + head) * p.n;
  T* const row_d = p.d + std::int64_t{row} * p.n;
  const bool rotated = p.cosines != nullptr && token >= p.unrotated;
  const std::int64_t angles = rotated ? std::int64_t{token - p.unrotated} * p.angles : 0;
  const auto x = [&](std::uint32_t i) { return widen(row_x[i]); };
  const auto before_rotation = [&](std::uint32_t i) {
    if (!rotated) return widen(row_d[i]);
    const std::uint32_t even = i / 2 * 2;
    float pair[2] = {widen(row_d[even]), widen(row_d[even + 1])};
    const std::int64_t at = angles + even % p.angles;
    ops::rotate_pair_backward(pair[0], pair[1], p.cosines + at, p.sines + at);
    return pair[i - even];
  };
  const auto g = [&](std::uint32_t i) { return before_rotation(i) * p.weight[i]; };
  const RowFactors factors = row_factors(p.n, p.centred, p.eps, x, g);
  // A lane overwrites whole pairs, which are rotated together.
  for (std::uint32_t i = threadIdx.x % warp_size * 2; i < p.n; i += 2 * warp_size) {
    const bool pair = i + 1 < p.n;
    const float even = factors.gradient(x(i), g(i));
    const float odd = pair ? factors.gradient(x(i + 1), g(i + 1)) : 0.0F;
    if (p.d_norm != nullptr) {
      T* const d_norm = p.d_norm + std::int64_t{row} * p.n;
      d_norm[i] = narrow<T>(before_rotation(i));
      if (pair) d_norm[i + 1] = narrow<T>(before_rotation(i + 1));
    }
    row_d[i] = narrow<T>(even);
    if (pair) row_d[i + 1] = narrow<T>(odd);
  }
}

template <class T>
struct Gated {
  const T* d;
  T* out;
  Numbers<T> table;
  std::int64_t table_elements, chunk, later;
  std::uint32_t table_rows, batch, first_tokens, n;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, n);
    const std::int64_t begin = element.row % batch % table_rows * table_elements + chunk +
                               (element.row / batch < first_tokens ? later : 0);
    float v[W], gate[W];
    load<W>(d + at, v);
    table.template load<W>(begin + element.column, gate);
    for (int i = 0; i < W; ++i) v[i] = v[i] * gate[i];
    store<W>(v, out + at);
  }
};

struct Gelu {
  __device__ float operator()(float x) const { return ops::gelu_tanh(x); }
};
struct GeluTanhGradient {
  __device__ float operator()(float x, float d) const { return d * ops::gelu_tanh_slope(x); }
};

// f: of x and of d → the new d.
template <class F>
void multiply_by_slope(const char* name, const F& f, const Tensor& x, Tensor& d) {
  visit_float(x.dtype(), [&](auto type) { map<decltype(type)>(name, d, f, x, d); });
}

}  // namespace

void layer_norm_backward(const Tensor& x, const Tensor& weight, float eps,
                         const ops::Modulation& modulation, const Tensor& d, Tensor& dx) {
  const Device device = x.device();
  const std::int64_t n = x.shape(2), rows = x.numel() / n;
  const bool modulated = !modulation.table.empty();
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(
        {"layer_norm_backward", device, blocks_for(rows, warps), threads}, layer_norm_rows<T>,
        LayerNormBackward<T>{.x = address<T>(x, device),
                             .d = address<T>(d, device),
                             .dx = address<T>(dx, device),
                             .weight = {weight, device},
                             .table = {modulation.table, device},
                             .table_elements = modulated ? modulation.table.shape(1) : 0,
                             .scale = modulation.scale * n,
                             .later = modulation.first.chunks_later * n,
                             .table_rows = modulated ? narrow_index(modulation.table.shape(0)) : 1,
                             .batch = narrow_index(x.shape(1)),
                             .first_tokens = narrow_index(modulation.first.count),
                             .n = narrow_index(n),
                             .rows = narrow_index(rows),
                             .eps = eps});
  });
}

void normalise_and_rotate_backward(const Tensor& x, const ops::HeadNorm& norm,
                                   const Tensor& cosines, const Tensor& sines,
                                   std::int64_t unrotated, Tensor& d, Tensor* d_norm) {
  const Device device = x.device();
  const std::int64_t n = x.shape(4), rows = d.numel() / n;
  const auto numbers = [&](const Tensor& t) -> const float* {
    return t.empty() ? nullptr : address<float>(t, device);
  };
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    launch({"normalise_and_rotate_backward", device, blocks_for(rows, warps), threads},
           head_rows<T>,
           HeadsBackward<T>{.x = address<T>(x, device),
                            .d = address<T>(d, device),
                            .d_norm = d_norm == nullptr ? nullptr : address<T>(*d_norm, device),
                            .weight = numbers(norm.weight),
                            .cosines = numbers(cosines),
                            .sines = numbers(sines),
                            .batch = narrow_index(x.shape(1)),
                            .parts = narrow_index(x.shape(2)),
                            .heads = narrow_index(x.shape(3)),
                            .n = narrow_index(n),
                            .unrotated = narrow_index(unrotated),
                            .rows = narrow_index(rows),
                            .angles = narrow_index(cosines.empty() ? n : cosines.shape(1)),
                            .centred = !norm.bias.empty(),
                            .eps = norm.eps});
  });
}

Tensor gated(const Tensor& d, const ops::Gate& gate) {
  const Device device = d.device();
  const std::int64_t n = d.shape(2);
  Tensor out = Tensor::empty(d.shape(), d.dtype(), device);
  visit_float(d.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = address<T>(d, device);
    T* into = address<T>(out, device);
    const Numbers<T> table(gate.table, device);
    for_packs<T>(
        "gated", device, d.numel(), n, {from, into, table.any()},
        Gated<T>{from, into, table, gate.table.shape(1), gate.chunk * n,
                 gate.first.chunks_later * n, narrow_index(gate.table.shape(0)),
                 narrow_index(d.shape(1)), narrow_index(gate.first.count), narrow_index(n)});
  });
  return out;
}

Tensor gelu_tanh(const Tensor& x) {
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (x.empty()) return out;
  visit_float(x.dtype(), [&](auto type) { map<decltype(type)>("gelu", out, Gelu{}, x); });
  return out;
}

void gelu_tanh_backward(const Tensor& x, Tensor& d) {
  multiply_by_slope("gelu_tanh_backward", GeluTanhGradient{}, x, d);
}

void gelu_backward(const Tensor& x, Tensor& d) {
  multiply_by_slope("gelu_backward", ops::GeluGradient{}, x, d);
}

}  // namespace reelmesh::gpu
