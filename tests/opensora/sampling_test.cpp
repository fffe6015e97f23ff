// All steps of a clip against Open-Sora's own code: transformer, guidance, sampler and noise.
#include "opensora/reference.hpp"
#include "pipeline/opensora_stages.hpp"
#include "sampler/generator.hpp"

namespace reelmesh {
namespace {

using pipeline::OpenSoraSampler;
using reelmesh::test::frame_first;
using reelmesh::test::frames_of;
using reelmesh::test::OpenSoraReference;
using reelmesh::test::relative_error;

class Clips : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(OpenSora, Clips, ::testing::Values("v1_0", "v1_2"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(Clips, EqualTheReferenceAfterEveryStep) {
  const OpenSoraReference reference(GetParam());
  const auto world = comm::Group::world();
  const auto folder = OpenSoraFolder::open({.root = reference.folder,
                                            .transformer = reference.folder / "transformer",
                                            .vae = reference.folder / "vae",
                                            .text_encoder = reference.folder / "text_encoder",
                                            .tokenizer = reference.folder / "tokenizer",
                                            .scheduler = reference.folder / "scheduler"});
  const STDiT model(folder.transformer_weights(), folder.transformer, DType::float32);
  const auto& facts = reference.facts["clips"][0];
  const Tensor z = frame_first(reference.get("clip0.noise"));
  const VideoSize size{104, 72, folder.vae.temporal ? 51 : z.shape(0)};
  const STDiTClip clip{{z.shape(0), z.shape(2), z.shape(3)}, size.height, size.width, 24};
  const SpaceTime layouts =
      space_time_layout(Shard::automatic, clip.tokens(folder.transformer.patch), world.size());
  const STDiTPlacement placement(folder.transformer, world, layouts, clip);
  const Layout boxes = placement.latents(4);
  const Box& box = own_box(boxes, world);

  TorchGenerator generator(facts["seed"].get<std::uint64_t>());
  Sharded x{Tensor::empty(box.extent, DType::float32), boxes, world};
  fill_noise_by_channel(generator, boxes.global(), box.offset, box.extent, 1,
                        x.local.data<float>());
  const auto whole = [&] {
    return relayout(x, Layout::replicated(boxes.global(), world.size())).local;
  };
  EXPECT_LT(relative_error(whole(), z), 1e-6);

  const STDiTContext context = model.read(reference.text(facts["prompt"].get<std::int64_t>()));
  const OpenSoraSampler sampler(folder, facts["steps"].get<int>(), size);
  const Tensor timesteps = reference.get("clip0.timesteps");
  ASSERT_EQ(sampler.calls(), timesteps.numel());
  for (int i = 0; i < sampler.calls(); ++i) {
    EXPECT_NEAR(sampler.timestep(i), timesteps.data<float>()[i], 1e-3);
    const auto predicted =
        model(placement, {&x.local, 1}, {&context, 1}, sampler.timestep(i)).front();
    sampler.step(i, reference.facts["guidance"].get<double>(), predicted[0], predicted[1], x.local,
                 [&](std::span<float> noise) {
                   fill_noise_by_channel(generator, boxes.global(), box.offset, box.extent, 2,
                                         noise.data());
                 });
    const Tensor expected = frame_first(reference.get("clip0.latents_after_step", i));
    EXPECT_LT(relative_error(frames_of(whole(), reference.get("clip0.latents_frames")), expected),
              1e-3)
        << "after step " << i;
  }
}

TEST(STDiTClip, TellsOfAnImageAsTheTrainingDid) {
  pipeline::Clip clip;
  clip.latent_frames = 5;
  clip.latent_height = 30;
  clip.latent_width = 53;
  clip.size = {240, 426, 17};
  clip.record.fps = 24;
  EXPECT_EQ(pipeline::stdit_clip(clip).fps, 24);
  EXPECT_EQ(pipeline::stdit_clip(clip).tokens({1, 2, 2}), (Shape{5, 15, 27}));
  clip.size.frames = 1;
  EXPECT_EQ(pipeline::stdit_clip(clip).fps, 120);
}

}  // namespace
}  // namespace reelmesh
