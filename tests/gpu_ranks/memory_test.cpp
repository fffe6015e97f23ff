// What models are said to hold and to need on a GPU, against what they do: each rank by itself.
#include "models/cogvideox/memory.hpp"
#include "gpu_ranks/ranks.hpp"
#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/transformer.hpp"
#include "models/reference.hpp"
#include "models/t5/memory.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::test {
namespace {

class MemoryOnGpu : public OnOwnDevice<testing::TestWithParam<DType>> {
 protected:
  Precision precision() const { return {GetParam(), GetParam(), true}; }
  Checkpoint open(const char* part, const char* stem) const {
    return Checkpoint::open(reference.folder / part, stem).on(device);
  }
  std::int64_t present() const { return device_memory(device).present; }
  // Bytes beside those of now, at the largest moment of `work`; libraries have what they want.
  template <class F>
  std::int64_t needed(F&& work) const {
    work();
    const std::int64_t before = present();
    cuda::peak_since_last(device);
    work();
    return cuda::peak_since_last(device) - before;
  }
  void expect_near(std::int64_t said, std::int64_t found, const char* what) const {
    EXPECT_LE(found, said) << what;
    EXPECT_GE(5 * found, 4 * said) << what;
  }

  Reference reference{"sincos"};
  comm::Group self = comm::Group::world().range(0, 1);
};
INSTANTIATE_TEST_SUITE_P(Types, MemoryOnGpu, testing::Values(DType::float32, DType::bfloat16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(MemoryOnGpu, OfT5) {
  const T5Config& c = reference.t5;
  const std::int64_t before = present();
  const T5Layers t5(open("text_encoder", "model"), c, {0, c.num_layers, true, true}, GetParam());
  expect_near(weight_bytes(t5_tensors(c), precision()), present() - before, "weights");
  const std::vector<std::int32_t> ids(64, 3);
  expect_near(t5_working_bytes(c, 64, precision()), needed([&] { t5(t5.embed(ids)); }), "work");
}

TEST_P(MemoryOnGpu, OfTheTransformer) {
  if (!self.member()) return;
  const CogVideoXConfig& c = reference.transformer;
  const std::int64_t before = present();
  const CogVideoXTransformer transformer(open("transformer", "diffusion_pytorch_model"), c,
                                         GetParam());
  expect_near(weight_bytes(cogvideox_tensors(c), precision()), present() - before, "weights");
  const std::int64_t rows = 2 * c.sample_height / c.patch.rows / 2,
                     columns = c.sample_width / c.patch.columns;
  const Layout grid = Layout::cut({3, rows, columns}, 0, 1), text = Layout::cut({19}, 0, 1);
  const std::int64_t video = 3 * rows * columns;
  const std::int64_t all = present();
  const CogVideoXPlacement placement(c, self, grid, text, 2, 1, device);
  const Tensor latents =
      Tensor::zeros(latent_layout(grid, c.patch, c.in_channels).global(), DType::float32, device);
  const Tensor context = Tensor::zeros({19, 2, c.text_channels}, GetParam(), device);
  const std::int64_t held = present() - all;
  const CogVideoXSizes sizes{2, 19, video, 19 + video, c.heads, 19 + video, true, false};
  expect_near(cogvideox_working_bytes(c, sizes, precision()),
              held + needed([&] {
                transformer(placement, {&latents, 1}, context, std::int64_t{500});
              }),
              "work");
}

TEST_P(MemoryOnGpu, OfTheDecoder) {
  if (!self.member()) return;
  const CogVideoXVaeConfig& c = reference.vae;
  const std::int64_t before = present();
  const CogVideoXDecoder decoder(open("vae", "diffusion_pytorch_model"), c, GetParam());
  expect_near(weight_bytes(cogvideox_decoder_tensors(c), precision()), present() - before,
              "weights");
  const Shape shape{3, c.latent_channels, 14, 10};
  const Sharded latents{Tensor::zeros(shape, DType::float32), Layout::cut(shape, 0, 1), self};
  // The emulated library takes nothing.
  const std::int64_t said = cogvideox_decode_bytes(c, {3, 14, 10}, precision());
  expect_near(said - convolution_workspace_bytes, needed([&] { decoder.pixels(latents); }), "work");
}

}  // namespace
}  // namespace reelmesh::test
