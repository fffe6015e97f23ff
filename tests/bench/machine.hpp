#pragma once
// Peak rates of the machine, measured in the same run as the operations compared with them.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>

#include "ops/onednn.hpp"
#include "ops/parallel.hpp"

namespace reelmesh::bench {

/// A clock in seconds: CPU time of this process if it has one thread, as other programs on the
/// machine disturb that least; wall-clock time if it has several.
inline double seconds() {
  if (omp_get_max_threads() == 1) {
    return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of the fastest of `runs` calls, after one warm-up call.
template <class F>
double shortest(int runs, F&& f) {
  f();
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const double begin = seconds();
    f();
    best = std::min(best, seconds() - begin);
  }
  return best;
}

/// FLOP/s of one large oneDNN matrix product with packed weights, on all threads together.
inline double product_rate(DType dtype) {
  constexpr std::int64_t n = 2048;
  using Tag = dnnl::memory::format_tag;
  const auto type = ops::onednn_type(ops::compute_dtype(dtype));
  const dnnl::matmul::primitive_desc description = ops::matmul_description(
      {{n, n}, type, Tag::ab}, {{n, n}, type, Tag::any}, {{n, n}, type, Tag::ab}, {});
  const dnnl::memory a(description.src_desc(), ops::engine());
  const dnnl::memory b(description.weights_desc(), ops::engine());
  const dnnl::memory c(description.dst_desc(), ops::engine());
  for (const dnnl::memory* m : {&a, &b})
    std::memset(m->get_data_handle(), 0, m->get_desc().get_size());
  dnnl::stream stream(ops::engine());
  const dnnl::matmul product(description);
  const double time = shortest(5, [&] {
    product.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream.wait();
  });
  return 2.0 * n * n * n / time;
}

/// Bytes per second, read plus written, of a copy larger than any cache, on all threads together.
inline double copy_rate() {
  constexpr std::int64_t bytes = std::int64_t{256} << 20, piece = 1 << 20;
  const Tensor from = Tensor::zeros({bytes}, DType::uint8);
  Tensor into = from.clone();
  const double time = shortest(5, [&] {
    ops::parallel_for(bytes / piece, 1, [&](std::int64_t i) {
      std::memcpy(into.data<std::uint8_t>() + i * piece, from.data<std::uint8_t>() + i * piece,
                  static_cast<std::size_t>(piece));
    });
  });
  return 2.0 * static_cast<double>(bytes) / time;
}

/// Bytes per second at which newly allocated memory is written first (page faults): an upper limit
/// for loading.
inline double touch_rate() {
  constexpr std::int64_t bytes = std::int64_t{128} << 20;
  return static_cast<double>(bytes) / shortest(3, [] { Tensor::zeros({bytes}, DType::uint8); });
}

struct Peaks {
  double float32 = 0, bfloat16 = 0, copy = 0, touch = 0;
  double product(DType dtype) const { return dtype == DType::bfloat16 ? bfloat16 : float32; }
};
inline const Peaks& peaks() {
  static const Peaks found{product_rate(DType::float32), product_rate(DType::bfloat16), copy_rate(),
                           touch_rate()};
  return found;
}

}  // namespace reelmesh::bench
