// Weights that are elsewhere, in calls that are captured as CUDA graphs.
#include "layout/weight_stream.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

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

// Also rows of which packs of 16 bytes do not consist.
TEST_P(WeightStreamOnGpu, NumbersOf8BitsAreExpandedWhereTheyAreUsed) {
  const Float8Values& table = *float8_values("F8_E5M2");
  Tensor values = Tensor::empty({std::ssize(table)}, DType::float32);
  std::ranges::copy(table, values.data<float>());
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
    for (const std::int64_t width : {channels, std::int64_t{42}}) {
      for (const auto& [residence, resident] :
           {std::pair{Residence::sharded, 0.0}, std::pair{Residence::host, 0.0},
            std::pair{Residence::host, 1.0}}) {
        WeightStream stream({residence, world, {}, false, resident});
        std::vector<ops::Linear> streamed, plain;
        for (unsigned i = 0; i < layers; ++i) {
          const Tensor factors = random_tensor({width}, i);
          Tensor bytes = Tensor::empty({width, width}, DType::uint8);
          std::uint8_t next = 0;
          for (std::uint8_t& byte : bytes.span<std::uint8_t>()) byte = next++ % 64;
          const Tensor weight = expand_float8(bytes, values, factors, dtype);
          const auto read = [bytes](std::int64_t first, std::int64_t count, std::byte* into) {
            std::memcpy(into, bytes.rows(first, count).raw(),
                        static_cast<std::size_t>(count * bytes.shape(1)));
          };
          const std::span<const float> each = factors.span<float>();
          streamed.push_back(stream.add({width,
                                         width,
                                         dtype,
                                         {},
                                         device,
                                         {},
                                         std::make_shared<const Float8Rows>(
                                             Float8Rows{&table, {each.begin(), each.end()}, read})},
                                        {}));
          plain.emplace_back(weight.on(device));
        }
        for (unsigned pass = 0; pass < 2; ++pass) {
          Tensor x = random_tensor({9, width}, pass, dtype).on(device), y = x;
          for (const ops::Linear& layer : streamed) x = layer(x);
          for (const ops::Linear& layer : plain) y = layer(y);
          EXPECT_TRUE(same_bits(x.on({}), y.on({})))
              << name_of(dtype) << ", " << width << " channels, "
              << (residence == Residence::host ? "host" : "sharded") << ", pass " << pass;
        }
      }
    }
  }
}

}  // namespace
}  // namespace reelmesh::test
