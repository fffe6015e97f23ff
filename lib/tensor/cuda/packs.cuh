#pragma once
// Elementwise kernels. They access memory in packs of 16 bytes if row lengths and addresses allow
// it, otherwise element by element. The results have the same bits either way.
#include <limits>
#include <vector>

#include "base/divisor.hpp"
#include "tensor/cuda/kernel.cuh"

namespace reelmesh::gpu {

inline std::uint32_t narrow_index(std::int64_t x) {
  expect(x >= 0 && x <= std::numeric_limits<std::uint32_t>::max(), "extent {} in a kernel", x);
  return static_cast<std::uint32_t>(x);
}

inline Divisor make_divisor(std::int64_t x) {
  expect(x > 0, "extent {} in a kernel", x);
  return Divisor(narrow_index(x));
}

/// Row and column of element `at` in rows of n elements. Fewer than 2³² rows.
struct RowColumn {
  std::uint32_t row, column;
  __device__ RowColumn(std::int64_t at, std::uint32_t n) {
    // 32-bit division is several times as fast, and enough for most tensors.
    if (at <= 0xffffffffLL) {
      row = static_cast<std::uint32_t>(at) / n;
      column = static_cast<std::uint32_t>(at) - row * n;
    } else {
      row = static_cast<std::uint32_t>(at / n);
      column = static_cast<std::uint32_t>(at - std::int64_t{row} * n);
    }
  }
  /// The same for rows of n.divisor() elements, without a division in most tensors.
  __device__ RowColumn(std::int64_t at, const Divisor& n) {
    if (at > 0xffffffffLL) {
      *this = RowColumn(at, n.divisor());
      return;
    }
    row = n.quotient(static_cast<std::uint32_t>(at));
    column = static_cast<std::uint32_t>(at) - row * n.divisor();
  }
};

/// Quotient and remainder.
struct Split {
  std::uint32_t quotient, rest;
  __device__ Split(std::uint32_t x, const Divisor& n)
      : quotient(n.quotient(x)), rest(x - quotient * n.divisor()) {}
};

/// W elements in registers, as floats.
template <int W>
struct Pack {
  float numbers[W];
  template <class T>
  __device__ explicit Pack(const T* from) {
    load<W>(from, numbers);
  }
};

/// Weights or tables, of the kernel's type T or float32.
template <class T>
class Numbers {
 public:
  Numbers() = default;  ///< none
  Numbers(const Tensor& tensor, Device device) {
    if (tensor.empty()) return;
    if (tensor.dtype() == DType::float32) {
      wide_ = address<float>(tensor, device);
    } else {
      same_ = address<T>(tensor, device);
    }
  }
  template <int W>
  __device__ void load(std::int64_t at, float (&into)[W]) const {
    if (wide_ != nullptr) {
      gpu::load<W>(wide_ + at, into);
    } else {
      gpu::load<W>(same_ + at, into);
    }
  }
  __device__ bool none() const { return wide_ == nullptr && same_ == nullptr; }
  const void* any() const {
    return wide_ != nullptr ? static_cast<const void*>(wide_) : static_cast<const void*>(same_);
  }

 private:
  const float* wide_ = nullptr;
  const T* same_ = nullptr;
};

template <int W, class T>
__device__ inline void copy(const T* from, T* into) {
  if constexpr (W == 1) {
    *into = *from;
  } else {
    static_assert(W * sizeof(T) == 16);
    *reinterpret_cast<uint4*>(into) = *reinterpret_cast<const uint4*>(from);
  }
}

/// into[i] = f(from[i]…) for W elements. Kernels that do more than that call load() and store().
template <int W, class T, class F, class... From>
__device__ inline void each(T* into, const F& f, const From*... from) {
  const auto compute = [&](const auto&... loaded) {
    float y[W];
    for (int i = 0; i < W; ++i) y[i] = f(loaded.numbers[i]...);
    store<W>(y, into);
  };
  compute(Pack<W>(from)...);
}

template <int W, class F>
__global__ void run_packs(std::int64_t packs, F f) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < packs; i += step) {
    f.template run<W>(i * W);
  }
}

/// Launches f.run<W>(at) for `count` elements in rows of n: with W = pack_size if rows are whole
/// packs and all addresses are aligned, otherwise with W = 1.
template <class T, class F>
void for_packs(const char* name, Device device, std::int64_t count, std::int64_t n,
               const std::vector<const void*>& addresses, const F& f) {
  constexpr int wide = pack_size<T>;
  bool packed = n % wide == 0;
  for (const void* p : addresses) packed = packed && aligned(p);
  constexpr std::int64_t max_blocks = std::int64_t{1} << 30;  // run_packs is a grid-stride loop
  if (packed) {
    launch({name, device, std::min(max_blocks, blocks_for(count / wide, 256))}, run_packs<wide, F>,
           count / wide, f);
  } else {
    launch({name, device, std::min(max_blocks, blocks_for(count, 256))}, run_packs<1, F>, count, f);
  }
}

/// Functor of map().
template <class T, class F, int count>
struct Map {
  F f;
  T* out;
  const T* in[count];
  template <int W>
  __device__ void run(std::int64_t at) const {
    if constexpr (count == 1) {
      each<W>(out + at, f, in[0] + at);
    } else {
      static_assert(count == 2);
      each<W>(out + at, f, in[0] + at, in[1] + at);
    }
  }
};

/// out[i] = f(in[i]…) for one or two tensors; all have type T and the same shape.
template <class T, class F, class... In>
void map(const char* name, Tensor& out, const F& f, const In&... in) {
  const Device device = out.device();
  const Map<T, F, sizeof...(In)> all{f, address<T>(out, device), {address<T>(in, device)...}};
  for_packs<T>(name, device, out.numel(), out.numel(), {all.out, address<T>(in, device)...}, all);
}

}  // namespace reelmesh::gpu
