#include "ops/cuda/timing.hpp"

#include <algorithm>

#include "base/trace.hpp"
#include "ops/cuda/digest.hpp"

namespace reelmesh::gpu {

std::vector<double> measure_seconds(Device device, const std::vector<std::function<void()>>& calls,
                                    double warm_up) {
  constexpr double enough = 1e-3;  // to be measured by the host's clock
  constexpr int rounds = 3, max = 20;
  const auto measure = [&](const std::function<void()>& call, int times) {
    synchronize(device);
    const std::int64_t start = trace::now_ns();
    for (int i = 0; i < times; ++i) call();
    synchronize(device);
    return static_cast<double>(trace::now_ns() - start) * 1e-9;
  };
  for (double worked = 0; worked < warm_up;) worked += measure(calls.front(), 1);
  std::vector<double> fastest;
  std::vector<int> times;
  for (const auto& call : calls) {
    const double once = measure(call, 1);
    fastest.push_back(once);
    times.push_back(std::clamp(static_cast<int>(enough / once), 1, max));
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      fastest[i] = std::min(fastest[i], measure(calls[i], times[i]) / times[i]);
    }
  }
  return fastest;
}

FastestCall fastest_call(Device device, const std::vector<std::function<void()>>& calls,
                         const Tensor& result, bool same_bits, double seconds) {
  if (calls.size() < 2) return {};
  const std::int64_t start = trace::now_ns();
  const auto passed = [&] { return static_cast<double>(trace::now_ns() - start) * 1e-9; };
  std::vector<std::size_t> tried;
  std::vector<std::function<void()>> suitable;
  Digest expected;
  for (std::size_t i = 0; i < calls.size() && (i == 0 || passed() < seconds / 2); ++i) {
    calls[i]();
    const Digest found = digest(result);
    if (i == 0) expected = found;
    if (same_bits && found != expected) continue;
    tried.push_back(i);
    suitable.push_back(calls[i]);
  }
  if (tried.size() < 2) return {};
  const std::vector<double> times = measure_seconds(device, suitable, std::min(0.05, seconds / 8));
  const auto best = std::ranges::min_element(times) - times.begin();
  const auto at = static_cast<std::size_t>(best);
  if (times[at] >= times.front() / min_gain) return {0, times.front(), times.front()};
  return {tried[at], times[at], times.front()};
}

namespace {

constexpr std::int64_t period = 1'000'003;  // prime: rows, tiles and channels differ

Tensor random_numbers(std::int64_t count) {
  Tensor numbers = Tensor::empty({count}, DType::float32);
  std::uint32_t state = 1;
  for (float& number : numbers.span<float>()) {
    state = state * 1664525 + 1013904223;
    number = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
  }
  return numbers;
}

// Dense, on the device: `numbers` again and again.
Tensor repeated(const Tensor& numbers, Device device, DType dtype, const Shape& shape) {
  const std::int64_t count = numel(shape), first = numbers.numel();
  Tensor all = Tensor::empty({count}, dtype, device);
  if (count == 0) return all.reshape(shape);
  all.rows(0, first).copy_from(numbers.to(dtype).on(device));
  for (std::int64_t done = first; done < count; done *= 2) {
    const std::int64_t more = std::min(done, count - done);
    all.rows(done, more).copy_from(all.rows(0, more));
  }
  return all.reshape(shape);
}

}  // namespace

Tensor numbers_to_measure(Device device, DType dtype, const Shape& shape) {
  return repeated(random_numbers(std::min(numel(shape), period)), device, dtype, shape);
}

Tensor cancelling_numbers(Device device, DType dtype, const Shape& shape, int sign) {
  const std::int64_t channels = shape.back(), half = channels / 2;
  if (channels % 2 != 0 || numel(shape) == 0) return numbers_to_measure(device, dtype, shape);
  const std::int64_t rows =
      std::min(numel(shape) / channels, std::max(period / channels, std::int64_t{1}));
  Tensor numbers = random_numbers(rows * channels);
  const std::span<float> values = numbers.span<float>();
  for (std::int64_t row = 0; row < rows; ++row) {
    float* const first = values.data() + row * channels;
    for (std::int64_t i = 0; i < half; ++i) first[half + i] = static_cast<float>(sign) * first[i];
  }
  return repeated(numbers, device, dtype, shape);
}

}  // namespace reelmesh::gpu
