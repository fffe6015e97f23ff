#include "ops/cuda/timing.hpp"

#include <algorithm>

#include "base/trace.hpp"

namespace reelmesh::gpu {

std::vector<double> measure_seconds(Device device,
                                    const std::vector<std::function<void()>>& calls) {
  constexpr double warm_up = 0.05, enough = 1e-3;  // enough: to be measured by the host's clock
  constexpr int rounds = 3, most = 20;
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
    times.push_back(std::clamp(static_cast<int>(enough / once), 1, most));
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      fastest[i] = std::min(fastest[i], measure(calls[i], times[i]) / times[i]);
    }
  }
  return fastest;
}

}  // namespace reelmesh::gpu
