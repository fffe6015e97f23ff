#include "sampler/cuda/steps.hpp"
#include "kernels/place.hpp"
#include "sampler/guidance.hpp"

namespace reelmesh::test {
namespace {

// Latents are float32; the numbers are those of whole packs and not.
class Step : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, Step, testing::Values(DType::float32), type_name);

const std::vector<Shape> shapes{{2, 4, 3, 8}, {1, 4, 3, 7}};

TEST_P(Step, Guidance) {
  for (const Shape& shape : shapes) {
    const Tensor a = random_tensor(shape, 1), b = random_tensor(shape, 2), out = a.clone();
    combine_guidance(6.5, a.span<float>(), b.span<float>(), out.span<float>());
    const Tensor z = there(a);
    gpu::combine_guidance(6.5, z, there(b), z);
    EXPECT_TRUE(same_bits(back(z), out));
  }
}

TEST_P(Step, Ddim) {
  const DdimCoefficients c{0.7F, 0.71F, 0.9F, 0.2F};
  for (const Shape& shape : shapes) {
    const Tensor v = random_tensor(shape, 1), x = random_tensor(shape, 2), z = there(x);
    ddim_step(c, v.span<float>(), x.span<float>());
    gpu::ddim_step(c, there(v), z);
    EXPECT_TRUE(same_bits(back(z), x));
  }
}

TEST_P(Step, DpmOfBothOrders) {
  DpmCoefficients c{0.7F, 0.71F, 1.5F, 0.5F, 0.9F, -0.3F, 0.1F, false};
  for (const Shape& shape : shapes) {
    const Tensor x = random_tensor(shape, 1), z = there(x);
    const Tensor clean = Tensor::zeros(shape, DType::float32), kept = there(clean);
    for (const bool second : {false, true, true}) {
      c.second_order = second;
      const Tensor v = random_tensor(shape, 2), noise = random_tensor(shape, 3);
      dpm_step(c, v.span<float>(), noise.span<float>(), clean.span<float>(), x.span<float>());
      gpu::dpm_step(c, there(v), there(noise), kept, z);
      EXPECT_TRUE(same_bits(back(z), x));
      EXPECT_TRUE(same_bits(back(kept), clean));
    }
  }
}

}  // namespace
}  // namespace reelmesh::test
