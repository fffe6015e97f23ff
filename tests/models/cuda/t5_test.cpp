// T5 in float16, with a float32 hidden state between layers.
#include "models/t5/t5.hpp"
#include "models/common/asked.hpp"

#include <algorithm>

#include "models/common/random_weights.hpp"
#include "support/temp_folder.hpp"
#include "support/test_device.hpp"
#include "weights/writer.hpp"

namespace reelmesh::test {
namespace {

class T5OnGpu : public KernelTest {
 protected:
  static constexpr T5Config config{
      .vocab_size = 40, .d_model = 32, .d_kv = 8, .d_ff = 64, .num_layers = 2, .num_heads = 4};

  // A float16 checkpoint. last_product: standard deviation of the weight of each layer's last GEMM.
  Checkpoint weights(float last_product) const {
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, shape] : tensors_of<T5Layers>(config, T5Part::whole(config))) {
      tensors.push_back({name, DType::float16, shape});
    }
    write_safetensors(folder_.path(), "model", tensors, [&](std::size_t i, Tensor& out) {
      const std::string& name = tensors[i].name;
      const bool norm = tensors[i].shape.size() == 1, last = name.ends_with(".wo.weight");
      fill_random(out, name, 1, norm ? Spread{1, 0.1F} : Spread{0, last ? last_product : 0.3F});
    });
    return Checkpoint::open(folder_.path(), "model");
  }

  TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Types, T5OnGpu, testing::Values(DType::float16), type_name);

constexpr std::int32_t ids[] = {3, 17, 39, 0, 1};

TEST_P(T5OnGpu, AgreesWithTheCpuBeyondTheRangeOfFloat16) {
  for (const float last_product : {0.3F, 10000.0F}) {
    const T5Part all{0, 2, true, true};
    const Checkpoint checkpoint = weights(last_product);
    const T5Layers here(checkpoint, config, all, DType::float32);
    const T5Layers there(checkpoint.on(test_device()), config, all, DType::float16);
    const Tensor result = there(there.embed(ids));
    EXPECT_EQ(result.dtype(), DType::float16);
    EXPECT_LT(relative_error(back(result), here(here.embed(ids))), 1e-2) << last_product;
  }
}

TEST_P(T5OnGpu, PartsGiveTheBitsOfTheWhole) {
  const Checkpoint checkpoint = weights(10000).on(test_device());
  const T5Layers all(checkpoint, config, {0, 2, true, true}, DType::float16);
  const T5Layers first(checkpoint, config, {0, 1, true, false}, DType::float16);
  const T5Layers second(checkpoint, config, {1, 2, false, true}, DType::float16);
  const Tensor between = first(first.embed(ids));
  EXPECT_EQ(between.dtype(), t5_stream(DType::float16));
  const Tensor values = back(between);
  EXPECT_GT(*std::ranges::max_element(values.span<float>()), 65504) << "float16 could hold it";
  EXPECT_TRUE(same_bits(back(second(between)), back(all(all.embed(ids)))));
}

// It belongs to a number of tokens, which most prompts of a job share.
TEST_P(T5OnGpu, KeepsThePositionBias) {
  const Checkpoint checkpoint = weights(1).on(test_device());
  const T5Part part{0, 2, true, true};
  const T5Layers layers(checkpoint, config, part, DType::float16);
  const auto few = std::span(ids).first(3);
  const auto bits = [&](const T5Layers& by, std::span<const std::int32_t> tokens) {
    return back(by(by.embed(tokens)));
  };
  const Tensor of_few = bits(layers, few);
  const std::int64_t before = device_memory(test_device()).present;
  const Tensor of_all = bits(layers, ids);
  EXPECT_EQ(device_memory(test_device()).present - before, config.num_heads * (5 * 5 - 3 * 3) * 4);
  EXPECT_TRUE(same_bits(bits(layers, ids), of_all));
  EXPECT_TRUE(same_bits(bits(layers, few), of_few));
  const T5Layers others(checkpoint, config, part, DType::float16);
  EXPECT_TRUE(same_bits(bits(others, ids), of_all));
}

}  // namespace
}  // namespace reelmesh::test
