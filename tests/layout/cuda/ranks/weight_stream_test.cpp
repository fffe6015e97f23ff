// Weights that are elsewhere, in calls that are captured as CUDA graphs.
#include "layout/weight_stream.hpp"

#include <cstring>

#include "layout/repeated_call.hpp"
#include "support/gpu_ranks.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::test {
namespace {

class WeightStreamOnGpu : public RanksTest {};
INSTANTIATE_TEST_SUITE_P(Transports, WeightStreamOnGpu, transports, transport_name);

constexpr std::int64_t layers = 6, channels = 48;

ops::WeightRows weight_rows(const Tensor& weight, Device device) {
  const auto read = [weight](std::int64_t first, std::int64_t count, void* into,
                             std::int64_t stride) {
    for (std::int64_t r = 0; r < count; ++r) {
      std::memcpy(static_cast<float*>(into) + r * stride, weight.rows(first + r, 1).raw(),
                  channels * sizeof(float));
    }
  };
  return {channels, channels, DType::float32, read, device, {}};
}

// After a capture that failed on one rank in the middle of a pass, weights are fetched from the
// first layer on, without waiting for what was captured.
TEST_P(WeightStreamOnGpu, GoesOnAfterAFailedCapture) {
  for (const Residence residence : {Residence::sharded, Residence::host}) {
    for (const std::int64_t failing : {std::int64_t{0}, layers / 2, layers}) {
      WeightStream stream({residence, world, {}, false, 0});
      std::vector<ops::Linear> streamed, plain;
      for (unsigned i = 0; i < layers; ++i) {
        const Tensor weight = random_tensor({channels, channels}, i);
        streamed.push_back(stream.add(weight_rows(weight, device), {}));
        plain.emplace_back(weight.on(device));
      }
      const bool capturable = world.capturable() && stream.capturable();
      Tensor x = Tensor::empty({9, channels}, DType::float32, device);
      int calls = 0;
      RepeatedCall chain(device, world, capturable, [&] {
        ++calls;
        Tensor y = x;
        for (std::int64_t i = 0; i <= layers; ++i) {
          if (calls == 2 && i == failing && capturable && world.rank() == 0) {
            fail(Status::unavailable, "no memory left");
          }
          if (i < layers) y = streamed[static_cast<std::size_t>(i)](y);
        }
        return std::vector{y};
      });
      for (unsigned seed = 0; seed < 3; ++seed) {
        x.copy_from(random_tensor({9, channels}, seed));
        Tensor y = x;
        for (const ops::Linear& layer : plain) y = layer(y);
        EXPECT_TRUE(same_bits(chain().front().on({}), y.on({})))
            << (residence == Residence::host ? "host" : "sharded") << ", failed before layer "
            << failing << ", call " << seed;
      }
      EXPECT_EQ(calls, capturable ? 4 : 3);
    }
  }
}

}  // namespace
}  // namespace reelmesh::test
