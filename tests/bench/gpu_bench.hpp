#pragma once
// Shared by the GPU benchmarks: random tensors on the device, timing, and rows of results.
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

/// Options from the command line.
struct BenchOptions {
  bool tiny = false;   ///< sizes small enough for an emulated GPU, to test this program
  std::string filter;  ///< only benchmarks whose names contain this
  double peak = 0;     ///< TFLOP/s that the GPU is said to reach, for a column of shares; 0: none
  bool once = false;   ///< calls each operation twice, untimed, for profilers
  /// Instead of all else, matrix products with every algorithm that is proposed, and attention and
  /// convolutions with every engine.
  bool products = false, attention = false, convolutions = false;
};

class Bench {
 public:
  Bench(Device device, DType dtype, BenchOptions options)
      : device_(device), dtype_(dtype), options_(std::move(options)) {}

  Device device() const { return device_; }
  DType dtype() const { return dtype_; }
  bool tiny() const { return options_.tiny; }
  bool once() const { return options_.once; }
  bool failed() const { return failed_; }

  /// Normally distributed values on the device; they repeat after 1,000,003 elements.
  Tensor random_tensor(const Shape& shape, float scale = 1.0F) const {
    return random_tensor(shape, dtype_, scale);
  }
  Tensor random_tensor(const Shape& shape, DType dtype, float scale = 1.0F) const {
    return test::repeated_random_tensor(shape, 1, dtype, scale, device_);
  }

  /// Median seconds of a call, over 3 to 10 measurements. Each measurement makes enough calls to
  /// take 20 ms and synchronizes once, at its end.
  double call_seconds(const std::function<void()>& operation) const {
    const auto run = [&](int calls) {
      cuda::synchronize(device_);
      const std::int64_t start = trace::now_ns();
      for (int i = 0; i < calls; ++i) operation();
      cuda::synchronize(device_);
      return static_cast<double>(trace::now_ns() - start) * 1e-9;
    };
    run(tiny() ? 1 : 2);  // warm-up: libraries select algorithms, memory is allocated
    const double first = run(1);
    const int calls = tiny() ? 1 : std::clamp(static_cast<int>(0.02 / first), 1, 1000);
    const int measurements = tiny() ? 1 : std::clamp(static_cast<int>(1.0 / first), 3, 10);
    std::vector<double> times;
    for (int i = 0; i < measurements; ++i) times.push_back(run(calls) / calls);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  /// Measures and prints one row. make() builds the operands and returns the operation. flops:
  /// floating-point operations, or 0; bytes: minimum read and written. Returns seconds, or 0 if the
  /// row was filtered out or failed.
  double add(const std::string& name, double flops, double bytes,
             const std::function<std::function<void()>()>& make) {
    if (!wanted(name)) return 0;
    double seconds = 0;
    guarded(name, [&] {
      const std::function<void()> operation = make();
      if (once()) {
        for (int i = 0; i < 2; ++i) operation();
        cuda::synchronize(device_);
        return;
      }
      seconds = call_seconds(operation);
      row(name, seconds, flops, bytes);
    });
    return seconds;
  }
  bool wanted(const std::string& name) const { return name.find(options_.filter) != name.npos; }

  /// Prints the head of the table.
  void head() const {
    fmt::print("| model/operation/type | ms | rate | of the machine |{}\n",
               options_.peak > 0 ? fmt::format(" of {:.4g} TFLOP/s |", options_.peak) : "");
    fmt::print("| --- | ---: | ---: | ---: |{}\n", options_.peak > 0 ? " ---: |" : "");
    std::fflush(stdout);
  }
  /// Prints a row: milliseconds, rate, the rate relative to the machine's measured peak and, of
  /// floating-point operations, to BenchOptions::peak.
  void row(const std::string& name, double seconds, double flops, double bytes) const {
    const double roof = flops > 0 ? product_ : copy_;
    const double rate = std::max(flops, bytes) / seconds;
    const auto share = [](double part, double whole) {
      return part > 0 && whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : "";
    };
    fmt::print("| {}/{} | {:.4g} | {} | {} |{}\n", name, name_of(dtype_), seconds * 1e3,
               flops > 0   ? fmt::format("{:.4g} TFLOP/s", rate * 1e-12)
               : bytes > 0 ? fmt::format("{:.4g} GB/s", rate * 1e-9)
                           : "",
               share(rate, roof),
               options_.peak > 0
                   ? fmt::format(" {} |", share(flops > 0 ? rate * 1e-12 : 0, options_.peak))
                   : "");
    std::fflush(stdout);
  }
  /// Runs measure(); an Error is printed as a row "failed", and later rows are still measured.
  void guarded(const std::string& name, const std::function<void()>& measure) {
    try {
      measure();
    } catch (const Error& error) {
      failed_ = true;
      fmt::print("| {}/{} | failed | {} | |\n", name, name_of(dtype_), error.what());
      std::fflush(stdout);
    }
  }

  /// Set the machine's peak rates, FLOP/s and bytes/s.
  void set_peak_flops(double rate) { product_ = std::max(product_, rate); }
  void set_peak_bandwidth(double rate) { copy_ = rate; }

 private:
  Device device_;
  DType dtype_;
  BenchOptions options_;
  bool failed_ = false;
  double product_ = 0, copy_ = 0;
};

/// Times the matrix products of CogVideoX with every algorithm that cuBLASLt proposes, for all
/// tokens of a clip and for a share of them, and says which have the bits of the reference.
void bench_products(Bench& bench);
/// The same for attention, and for the decoder's and encoder's convolutions, with every engine of
/// cuDNN that can be used.
void bench_attention(Bench& bench);
void bench_convolutions(Bench& bench);

/// Times whole layers of CogVideoX's transformer with random weights, and extrapolates to a step.
void bench_layers(Bench& bench, const std::string& model);

}  // namespace reelmesh::bench
