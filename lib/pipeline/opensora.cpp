#include "pipeline/opensora.hpp"

#include "pipeline/opensora_stages.hpp"
#include "text/clean.hpp"

namespace reelmesh::pipeline {
namespace {

bool is_v3(const OpenSoraFolder& model) { return model.transformer.kind == STDiTConfig::Kind::v3; }

// Release 1.2 was trained with scores behind its captions; its authors' script adds this one. What
// is not to be cleaned is taken as it is.
std::string caption_of(const OpenSoraFolder& model, const Job& job, const ClipRequest& request) {
  const std::string& prompt = request.prompt;
  if (!request.clean.value_or(job.clean_prompts) || !request.token_ids.empty()) return prompt;
  const bool scored = prompt.find("aesthetic score:") != std::string::npos;
  return clean_caption(is_v3(model) && !scored ? prompt + " aesthetic score: 6.5." : prompt);
}

// Options that mean something to other families only.
void check_options(const OpenSoraFolder& model, const Job& job) {
  require(!job.scheduler, Status::usage,
          "sample.scheduler: {} is given, and this checkpoint's own is expected, which is {}",
          job.scheduler.value_or(""), model.scheduler_name());
  require(!job.dynamic_guidance, Status::usage,
          "sample.dynamic-guidance: yes is given, and Open-Sora's samplers have none");
  const auto only_one = [](const char* option, const std::optional<int>& ranks) {
    require(ranks.value_or(1) == 1, Status::usage,
            "{}: {} is given, and 1 is expected: the ranks that denoise one of Open-Sora's clips "
            "have frames, then places of it (parallel.ulysses says how many they are)",
            option, ranks.value_or(1));
  };
  only_one("parallel.cfg", job.parallel.cfg);
  only_one("parallel.ring", job.parallel.ring);
}

}  // namespace

std::vector<Clip> OpenSora::clips(const Job& job, const Tokenizer& tokenizer) const {
  const STDiTConfig& c = folder_.transformer;
  require(tokenizer.vocabulary_size() <= folder_.text_encoder.vocab_size, Status::data,
          "{}: the tokenizer has {} ids and the text encoder's embedding {} rows",
          folder_.paths.root.string(), tokenizer.vocabulary_size(),
          folder_.text_encoder.vocab_size);
  check_options(folder_, job);
  const VideoSize usual = folder_.default_size();
  const std::int64_t pixels = folder_.vae.image.compression();
  std::vector<Clip> clips;
  for (const ClipRequest& request : job.clips) {
    const int index = static_cast<int>(clips.size());
    require(request.negative_prompt.empty(), Status::usage,
            "prompt.negative: clip {} has '{}', and none is expected: Open-Sora's guidance is "
            "against a caption that the checkpoint holds",
            index, request.negative_prompt);
    Clip clip;
    clip.size = {given(request.height, job.height, usual.height),
                 given(request.width, job.width, usual.width),
                 given(request.frames, job.frames, usual.frames)};
    // STDiT3 fills up patches at the edges, and pixels that make no latent are not made.
    check_size("sample.height", index, clip.size.height,
               is_v3(folder_) ? 1 : pixels * c.patch.rows);
    check_size("sample.width", index, clip.size.width,
               is_v3(folder_) ? 1 : pixels * c.patch.columns);
    clip.latent_height = clip.size.height / pixels;
    clip.latent_width = clip.size.width / pixels;
    clip.latent_frames = folder_.vae.latent_frames(clip.size.frames);

    ClipRecord& record = clip.record;
    record.index = index;
    record.prompt = request.prompt;
    record.seed = request.seed.value_or(job.seed + static_cast<std::uint64_t>(index));
    record.steps = given(request.steps, job.steps, static_cast<int>(folder_.default_steps()));
    record.guidance = given(request.guidance, job.guidance, folder_.default_guidance());
    record.fps = given(request.fps, job.fps, folder_.default_fps());
    record.model = folder_.paths.root.string();
    record.scheduler = folder_.scheduler_name();
    record.dtype = std::string(name_of(job.dtype));
    Encoded text = encode_prompt(tokenizer, request, caption_of(folder_, job, request),
                                 c.max_text_tokens, index);
    text.ids.resize(static_cast<std::size_t>(text.kept));
    record.token_ids = text.ids;
    clip.branches.push_back(std::move(text.ids));
    (void)OpenSoraSampler(folder_, record.steps, clip.size);  // refuses impossible numbers now
    clips.push_back(std::move(clip));
  }
  return clips;
}

ClipShapes OpenSora::shapes(const Job& job, const Clip& clip) const {
  const std::int64_t pixels = folder_.vae.image.compression();
  ClipShapes shapes;
  if (job.keep_video) {
    shapes.video = {clip.size.frames, clip.latent_height * pixels, clip.latent_width * pixels, 3};
  }
  if (job.keep_latents) {
    shapes.latents = {clip.latent_frames, folder_.transformer.in_channels, clip.latent_height,
                      clip.latent_width};
  }
  if (job.keep_embeddings) {
    shapes.prompt_embeds = {static_cast<std::int64_t>(clip.branches.front().size()),
                            folder_.transformer.text_channels};
  }
  return shapes;
}

std::string OpenSora::describe(const Plan& plan, const Clip& clip, DType dtype) const {
  const STDiTConfig& c = folder_.transformer;
  const SpaceTime layouts =
      space_time_layout(plan.shard, stdit_clip(clip).tokens(c.patch), plan.denoise.front().count,
                        plan.speeds_of(plan.denoise.front()));
  return reelmesh::describe(plan, layouts,
                            {c.layers, c.hidden, c.heads, STDiT::branches, size_of(dtype)});
}

ClipCost OpenSora::cost(const Plan& plan, const Clip& clip, std::int64_t clips,
                        const Precision& precision) const {
  return open_sora_cost(plan, folder_.transformer, folder_.vae, stdit_clip(clip), clips,
                        static_cast<std::int64_t>(clip.branches.front().size()), clip.size.frames,
                        precision);
}

// Frames and places are exchanged by all with all.
Mesh OpenSora::mesh(const Plan& plan, const Clip& /*clip*/, DType /*dtype*/) const {
  return {1, 1, plan.denoise.front().count};
}

std::unique_ptr<DenoiseStage> OpenSora::denoise(const comm::Group& world, const Plan& plan,
                                                DType dtype) const {
  return std::make_unique<OpenSoraDenoise>(world, plan, folder_, dtype);
}

std::unique_ptr<DecodeStage> OpenSora::decode(const comm::Group& world, const Plan& plan,
                                              DType dtype) const {
  return std::make_unique<OpenSoraDecode>(world, plan, folder_, dtype);
}

}  // namespace reelmesh::pipeline
