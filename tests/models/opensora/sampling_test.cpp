// Compares all steps of a clip with Open-Sora's own code: transformer, guidance, sampler and noise.
#include "forecast/plan_job.hpp"
#include "job/denoise.hpp"
#include "layout/relayout.hpp"
#include "models/opensora/placement.hpp"
#include "models/opensora/reference.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::frame_first;
using reelmesh::test::frames_at;
using reelmesh::test::OpenSoraReference;
using reelmesh::test::relative_error;

class Clips : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(OpenSora, Clips, ::testing::Values("v1_0", "v1_2"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(Clips, EqualTheReferenceAfterEveryStep) {
  const OpenSoraReference reference(GetParam());
  const auto world = test::world();
  const auto& facts = reference.facts["clips"][0];
  const auto row = facts["prompt"].get<std::int64_t>();
  const Tensor z = frame_first(reference.get("clip0.noise"));
  Job job;
  job.model = {.root = reference.folder,
               .transformer = reference.folder / "transformer",
               .vae = reference.folder / "vae",
               .text_encoder = reference.folder / "text_encoder",
               .tokenizer = reference.folder / "tokenizer",
               .scheduler = reference.folder / "scheduler"};
  job.clips.resize(1);
  ClipRequest& request = job.clips.front();
  request.prompt = reference.facts["texts"][std::size_t(row)];
  request.settings.seed = facts["seed"].get<std::uint64_t>();
  request.settings.steps = facts["steps"].get<int>();
  request.settings.guidance = reference.facts["guidance"].get<double>();
  if (reference.transformer.kind == STDiTConfig::Kind::v3) {
    request.settings.height = 104;
    request.settings.width = 72;
    request.settings.frames = 51;
    request.settings.fps = 24;
  }
  const JobPlan planned =
      plan_job(job, plan_conditions(job, world.size(), 1, {}, DType::float32, false));
  const Batch batch{planned.clip(job, planned.clips.front())};
  ASSERT_EQ(batch.front().latent_shape(), z.shape());
  const DenoiseLayout& layout = planned.clip_plan(batch.front(), planned.plan).denoise.front();
  const Family& family = *planned.family;
  const auto model = family.denoiser([&](ModelPart part) { return family.open(part); },
                                     DType::float32, {}, family.layers());
  const Tensor text = reference.text(row);
  const Conditioning conditioning{text.reshape({text.shape(0), 1, text.shape(1)})};
  Denoising denoising(world, layout, batch, {&conditioning, 1}, *model);
  const auto whole = [&] {
    const Sharded latents = denoising.state_arrays(0).front().values;
    return relayout(latents, Layout::replicated(latents.layout.global(), world.size())).local;
  };
  EXPECT_LT(relative_error(whole(), z), 1e-6);

  const Tensor timesteps = reference.get("clip0.timesteps");
  ASSERT_EQ(batch.front().sampling.sampler->calls(), timesteps.numel());
  for (int i = 0; !denoising.finished(); ++i) {
    EXPECT_NEAR(batch.front().sampling.sampler->timestep(i), timesteps.data<float>()[i], 1e-3);
    denoising.step_together();
    const Tensor expected = frame_first(reference.get("clip0.latents_after_step", i));
    EXPECT_LT(relative_error(frames_at(whole(), reference.get("clip0.latents_frames")), expected),
              1e-3)
        << "after step " << i;
  }
}

TEST(STDiTClip, UsesFps120ForImages) {
  DenoiseTask task;
  task.latents = {5, 30, 53};
  task.size = {240, 426, 17};
  task.fps = 24;
  EXPECT_EQ(stdit_clip(task).fps, 24);
  EXPECT_EQ(stdit_clip(task).tokens({1, 2, 2}), (Shape{5, 15, 27}));
  task.size.frames = 1;
  EXPECT_EQ(stdit_clip(task).fps, 120);
}

}  // namespace
}  // namespace reelmesh
