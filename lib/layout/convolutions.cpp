#include "layout/convolutions.hpp"

#include <string>
#include <vector>

#include "base/log.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "ops/convolution.hpp"

namespace reelmesh {

void agree_on_convolutions(const comm::Group& group, Device device,
                           std::span<const ConvolutionShape> shapes, const Numerics& numerics) {
  if (!device.is_cuda() || device.only_shapes || group.size() == 1) return;
  std::vector<ConvolutionShape> open(shapes.begin(), shapes.end());
  for (std::size_t attempt = 0; !open.empty(); ++attempt) {
    std::vector<std::string> choices;
    comm::run_on_first_rank(group, [&] {
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
