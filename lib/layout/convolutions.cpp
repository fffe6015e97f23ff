#include "layout/convolutions.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "ops/convolution.hpp"

namespace reelmesh {

namespace {

// Of all convolutions of a job, on the first rank.
constexpr double seconds_to_measure = 1.5;

// Products of a convolution, if results lie as closely as values do: for shares of the time.
double products(const ConvolutionShape& shape) {
  const auto numbers = [](const Shape& extents) { return static_cast<double>(numel(extents)); };
  return numbers(shape.source) / static_cast<double>(shape.source.back()) * numbers(shape.weight) /
         static_cast<double>(shape.stride * shape.stride);
}

// Each has a share of the time that is left, by its work, and at least one algorithm.
void measure(Device device, const std::vector<ConvolutionShape>& shapes, const Numerics& numerics) {
  std::vector<ConvolutionShape> ordered = shapes;
  std::ranges::sort(ordered, std::ranges::greater(), products);
  double work = 0;
  for (const ConvolutionShape& shape : ordered) work += products(shape);
  const std::int64_t start = trace::now_ns();
  for (const ConvolutionShape& shape : ordered) {
    const double passed = static_cast<double>(trace::now_ns() - start) * 1e-9;
    const double left = std::max(0.0, seconds_to_measure - passed);
    const double share = std::min(1.0, products(shape) / work);
    ops::measure_convolution(device, shape, numerics, left * share);
    work -= products(shape);
  }
  if (ordered.empty()) return;
  log::debug("{} convolutions measured in {:.2f} s", ordered.size(),
             static_cast<double>(trace::now_ns() - start) * 1e-9);
}

}  // namespace

void agree_on_convolutions(const comm::Group& group, Device device,
                           std::span<const ConvolutionShape> shapes, const Numerics& numerics) {
  if (!device.is_cuda() || device.only_shapes) return;
  std::vector<ConvolutionShape> open(shapes.begin(), shapes.end());
  for (std::size_t attempt = 0; !open.empty(); ++attempt) {
    std::vector<std::string> choices;
    comm::run_on_first_rank(group, [&] {
      if (attempt == 0) measure(device, open, numerics);
      for (const ConvolutionShape& shape : open) {
        choices.push_back(ops::convolution_choice(device, shape, numerics, attempt));
      }
    });
    choices = comm::broadcast_texts(group, choices, 0);
    std::vector<std::int64_t> lacks(open.size());
    comm::run_collectively(group, [&] {
      for (std::size_t i = 0; i < open.size(); ++i) {
        lacks[i] = ops::use_convolution(device, open[i], numerics, choices[i]) ? 0 : 1;
      }
    });
    group.max(lacks);
    std::vector<ConvolutionShape> left;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (lacks[i] != 0) left.push_back(std::move(open[i]));
    }
    open = std::move(left);
    if (!open.empty()) {
      log::warning(
          "{} convolution{} cannot be computed on all ranks by the algorithm that the first rank "
          "takes; all take the next one",
          open.size(), open.size() == 1 ? "" : "s");
    }
  }
}

}  // namespace reelmesh
