#pragma once
// What the benchmarks of a GPU share: random numbers on it, measuring, and rows of results.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "support/random_tensor.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::bench {

/// What to measure, from the command line.
struct Wish {
  bool tiny = false;   ///< sizes that an emulated GPU manages: shows that the program works
  std::string filter;  ///< part of the names
};

class Bench {
 public:
  Bench(Device device, DType dtype, Wish wish)
      : device_(device), dtype_(dtype), wish_(std::move(wish)) {}

  Device device() const { return device_; }
  DType dtype() const { return dtype_; }
  bool tiny() const { return wish_.tiny; }
  bool failed() const { return failed_; }

  /// Random numbers on the device; the values of a large tensor repeat.
  Tensor numbers(const Shape& shape, float scale = 1.0F) const {
    return numbers(shape, dtype_, scale);
  }
  Tensor numbers(const Shape& shape, DType dtype, float scale = 1.0F) const {
    constexpr std::int64_t some = 1'000'003;
    const std::int64_t count = numel(shape);
    const Tensor values = test::random_tensor({std::min(some, count)}, 1, dtype, scale).on(device_);
    const Tensor all = Tensor::empty({count}, dtype, device_);
    for (std::int64_t first = 0; first < count; first += some) {
      const std::int64_t n = std::min(some, count - first);
      all.rows(first, n).copy_from(values.rows(0, n));
    }
    return all.reshape(shape);
  }

  /// Median of at most ten measurements, each of as many calls as fill 20 ms, with the host waiting
  /// once at the end of each.
  double seconds_of(const std::function<void()>& operation) const {
    const auto run = [&](int calls) {
      cuda::synchronize(device_);
      const std::int64_t start = trace::now_ns();
      for (int i = 0; i < calls; ++i) operation();
      cuda::synchronize(device_);
      return static_cast<double>(trace::now_ns() - start) * 1e-9;
    };
    run(tiny() ? 1 : 2);  // libraries choose, memory is taken
    const double first = run(1);
    const int calls = tiny() ? 1 : std::clamp(static_cast<int>(0.02 / first), 1, 1000);
    const int measurements = tiny() ? 1 : std::clamp(static_cast<int>(1.0 / first), 3, 10);
    std::vector<double> times;
    for (int i = 0; i < measurements; ++i) times.push_back(run(calls) / calls);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  /// One row, printed at once. make() builds what the operation needs. flops: floating-point
  /// operations, or 0; bytes: read and written at least. → seconds, 0 where it was not measured.
  double add(const std::string& name, double flops, double bytes,
             const std::function<std::function<void()>()>& make) {
    if (!wanted(name)) return 0;
    double seconds = 0;
    guarded(name, [&] {
      const std::function<void()> operation = make();
      seconds = seconds_of(operation);
      row(name, seconds, flops, bytes);
    });
    return seconds;
  }
  bool wanted(const std::string& name) const { return name.find(wish_.filter) != name.npos; }

  /// A row for what was measured: the rate, and what share it is of the machine's.
  void row(const std::string& name, double seconds, double flops, double bytes) const {
    const double roof = flops > 0 ? product_ : copy_;
    const double rate = std::max(flops, bytes) / seconds;
    fmt::print("| {}/{} | {:.4g} | {} | {} |\n", name, name_of(dtype_), seconds * 1e3,
               flops > 0   ? fmt::format("{:.4g} TFLOP/s", rate * 1e-12)
               : bytes > 0 ? fmt::format("{:.4g} GB/s", rate * 1e-9)
                           : "",
               rate > 0 && roof > 0 ? fmt::format("{:.0f} %", 100 * rate / roof) : "");
    std::fflush(stdout);
  }
  /// What fails is a row as well, and the others go on.
  void guarded(const std::string& name, const std::function<void()>& measure) {
    try {
      measure();
    } catch (const Error& error) {
      failed_ = true;
      fmt::print("| {}/{} | failed | {} | |\n", name, name_of(dtype_), error.what());
      std::fflush(stdout);
    }
  }

  /// The machine's rates, of which others are shares: operations and bytes a second.
  void product_is(double rate) { product_ = std::max(product_, rate); }
  void copy_is(double rate) { copy_ = rate; }

 private:
  Device device_;
  DType dtype_;
  Wish wish_;
  bool failed_ = false;
  double product_ = 0, copy_ = 0;
};

/// Whole layers of CogVideoX's transformer, with random weights; the time of a step follows.
void bench_layers(Bench& bench, const std::string& model);

}  // namespace reelmesh::bench
