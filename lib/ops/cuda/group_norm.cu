// Group norms of images. Kernels compute the sums of this rank in the same order as the CPU. If
// several ranks share an image, the host adds their sums and computes the statistics; otherwise a
// kernel does, with the same bits, and nothing waits.
#include <cstring>

#include "ops/cuda/ops.hpp"
#include "ops/math.hpp"
#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

// A block adds up one cell: pixel by pixel for each channel, then by group, in the CPU's order.
template <class T>
struct GroupSums {
  const T* x;
  std::int64_t* sums;  ///< [2·groups][4]: the members of ExactSum
  std::uint32_t frames, rows, columns, channels, groups, cell;
};

template <class T>
__global__ void sum_cells(GroupSums<T> p) {
  auto* of_channels = shared_memory<double>();  // sums, then squares
  const std::uint32_t line = blockIdx.x / (p.columns / p.cell);
  const std::uint32_t left = blockIdx.x % (p.columns / p.cell) * p.cell;
  for (std::uint32_t c = threadIdx.x; c < p.channels; c += blockDim.x) {
    double sum = 0, squares = 0;
    for (std::uint32_t t = 0; t < p.frames; ++t) {
      for (std::uint32_t i = 0; i < p.cell; ++i) {
        const std::int64_t row = std::int64_t{t} * p.rows + line * p.cell + i;
        const T* pixel = p.x + (row * p.columns + left) * p.channels + c;
        for (std::uint32_t j = 0; j < p.cell; ++j) {
          const double value = widen(pixel[std::int64_t{j} * p.channels]);
          sum += value;
          squares += value * value;
        }
      }
    }
    of_channels[c] = sum;
    of_channels[p.channels + c] = squares;
  }
  __syncthreads();
  const std::uint32_t size = p.channels / p.groups;
  for (std::uint32_t g = threadIdx.x; g < 2 * p.groups; g += blockDim.x) {
    double grouped = 0;
    for (std::uint32_t c = g * size; c < (g + 1) * size; ++c) grouped += of_channels[c];
    ExactSum exact;
    exact.add(grouped);
    // Integer sums: independent of the order of the blocks.
    atomic_add(p.sums + 4 * g, exact.high);
    atomic_add(p.sums + 4 * g + 1, exact.middle);
    atomic_add(p.sums + 4 * g + 2, exact.low);
    atomic_add(p.sums + 4 * g + 3, exact.lost);
  }
}

// x·factor + offset by channel, then silu if with_silu.
template <class T>
struct GroupNorm {
  const T* x;
  T* out;
  const float *factor, *offset;
  Divisor n;
  bool with_silu;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, n);
    const auto normed = [this](float v, float f, float o) {
      const float y = v * f + o;
      return with_silu ? ops::silu(y) : y;
    };
    each<W>(out + at, normed, x + at, factor + element.column, offset + element.column);
  }
};

constexpr int max_frames = 64;  // of one launch

template <class T>
struct SpatialNormSilu {
  const T* x;
  T* out;
  const T *scale, *shift;
  const float *factor, *offset;
  Divisor n, columns, rows;
  std::uint32_t latent_rows, latent_columns;
  std::uint16_t latent_frame[max_frames];
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, n);
    const Split line(element.row, columns), plane(line.quotient, rows);
    const std::uint32_t latent_row = rows.quotient(plane.rest * latent_rows),
                        latent_column = columns.quotient(line.rest * latent_columns);
    const std::int64_t latent =
        ((std::int64_t{latent_frame[plane.quotient]} * latent_rows + latent_row) * latent_columns +
         latent_column) *
            n.divisor() +
        element.column;
    const auto normed = [](float v, float f, float o, float a, float b) {
      return ops::silu((v * f + o) * a + b);
    };
    each<W>(out + at, normed, x + at, factor + element.column, offset + element.column,
            scale + latent, shift + latent);
  }
};

// Mean and 1/√(variance + eps) of each group, with the CPU's arithmetic.
__global__ void statistics_from_sums(const ExactSum* sums, std::uint32_t groups, double count,
                                     double eps, float* mean, float* rstd) {
  for (std::uint32_t g = threadIdx.x; g < groups; g += blockDim.x) {
    const ops::MeanRstd of_group(sums[g], sums[groups + g], count, eps);
    mean[g] = of_group.mean;
    rstd[g] = of_group.rstd;
  }
}

// ops::channel_factors for n channels: factors, then offsets.
struct ChannelFactors {
  const float *mean, *rstd, *weight, *bias;
  float* out;
  std::uint32_t n, size;  ///< size: channels of a group
  template <int W>
  __device__ void run(std::int64_t at) const {
    for (std::int64_t c = at; c < at + W; ++c) {
      const float factor = rstd[c / size] * weight[c];
      out[c] = factor;
      out[n + c] = bias[c] - mean[c / size] * factor;
    }
  }
};

// Factors and offsets of the channels, [2, channel].
Tensor factors_on(Device device, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias) {
  const std::int64_t n = weight.numel(), groups = statistics.mean.numel();
  expect(bias.numel() == n && n % groups == 0,
         "group norm of {} groups with {} weights and {} biases", groups, n, bias.numel());
  Tensor out = Tensor::empty({2, n}, DType::float32, device);
  const ChannelFactors f{address<float>(statistics.mean, device),
                         address<float>(statistics.rstd, device),
                         address<float>(weight, device),
                         address<float>(bias, device),
                         address<float>(out, device),
                         narrow_index(n),
                         narrow_index(n / groups)};
  for_packs<float>("channel_factors", device, n, n, {}, f);
  return out;
}

// Sums of the groups, [2·groups] ExactSum: pairs of int32, because tensors have no 64-bit type.
Tensor sums_on_device(const Tensor& x, std::int64_t groups, std::int64_t cell) {
  const std::int64_t rows = x.shape(1), columns = x.shape(2), channels = x.shape(3);
  const Device device = x.device();
  static_assert(sizeof(ExactSum) == 4 * sizeof(std::int64_t));
  Tensor sums = Tensor::zeros({2 * groups, 8}, DType::int32, device);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const GroupSums<T> sum{
        address<T>(x, device),    static_cast<std::int64_t*>(sums.address_on(device)),
        narrow_index(x.shape(0)), narrow_index(rows),
        narrow_index(columns),    narrow_index(channels),
        narrow_index(groups),     narrow_index(cell)};
    launch({"group_sums", device, rows / cell * (columns / cell), 128, 16 * channels}, sum_cells<T>,
           sum);
  });
  return sums;
}

}  // namespace

std::vector<ExactSum> group_sums(const Tensor& x, std::int64_t groups, std::int64_t cell) {
  const Tensor host = sums_on_device(x, groups, cell).on({});
  std::vector<ExactSum> result(static_cast<std::size_t>(2 * groups));
  std::memcpy(result.data(), host.raw(), static_cast<std::size_t>(host.bytes()));
  return result;
}

GroupStatistics group_statistics(const Tensor& x, std::int64_t groups, std::int64_t cell,
                                 double count, double eps) {
  const Device device = x.device();
  const Tensor sums = sums_on_device(x, groups, cell);
  GroupStatistics result{Tensor::empty({groups}, DType::float32, device),
                         Tensor::empty({groups}, DType::float32, device)};
  launch({"group_statistics", device, 1, 64}, statistics_from_sums,
         static_cast<const ExactSum*>(sums.address_on(device)), narrow_index(groups), count, eps,
         address<float>(result.mean, device), address<float>(result.rstd, device));
  return result;
}

Tensor group_norm(const Tensor& x, const GroupStatistics& statistics, const Tensor& weight,
                  const Tensor& bias, bool with_silu) {
  const Device device = x.device();
  Tensor out = Tensor::empty(x.shape(), x.dtype(), device);
  if (x.empty()) return out;
  const std::int64_t n = x.shape(3);
  const Tensor factors = factors_on(device, statistics, weight, bias);
  const auto* factor = address<float>(factors, device);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = address<T>(x, device);
    T* into = address<T>(out, device);
    for_packs<T>("group_norm", device, x.numel(), n, {from, into, factor},
                 GroupNorm<T>{from, into, factor, factor + n, make_divisor(n), with_silu});
  });
  return out;
}

void spatial_norm_silu(const Tensor& x, const SpatialNorm& norm, Tensor& out) {
  if (x.empty()) return;
  const Device device = x.device();
  const std::int64_t n = x.shape(3);
  const Tensor factors = factors_on(device, norm.statistics, norm.weight, norm.bias);
  const auto* factor = address<float>(factors, device);
  expect(static_cast<std::int64_t>(norm.latent_frame.size()) >= x.shape(0),
         "spatial norm of {} frames, but latent_frame has {} entries", x.shape(0),
         norm.latent_frame.size());
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    for (std::int64_t first = 0; first < x.shape(0); first += max_frames) {
      const std::int64_t frames = std::min<std::int64_t>(max_frames, x.shape(0) - first);
      const Tensor part = x.rows(first, frames);
      Tensor result = out.rows(first, frames);
      SpatialNormSilu<T> f{address<T>(part, device),
                           address<T>(result, device),
                           address<T>(norm.scale, device),
                           address<T>(norm.shift, device),
                           factor,
                           factor + n,
                           make_divisor(n),
                           make_divisor(x.shape(2)),
                           make_divisor(x.shape(1)),
                           narrow_index(norm.scale.shape(1)),
                           narrow_index(norm.scale.shape(2)),
                           {}};
      for (std::int64_t i = 0; i < frames; ++i) {
        f.latent_frame[i] =
            static_cast<std::uint16_t>(norm.latent_frame[static_cast<std::size_t>(first + i)]);
      }
      for_packs<T>("spatial_norm_silu", device, part.numel(), n,
                   {f.x, f.out, f.scale, f.shift, factor}, f);
    }
  });
}

}  // namespace reelmesh::gpu
