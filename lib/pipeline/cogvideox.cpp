#include "pipeline/cogvideox.hpp"

#include "pipeline/stages.hpp"

namespace reelmesh::pipeline {

std::vector<Clip> CogVideoX::clips(const Job& job, const Tokenizer& tokenizer) const {
  return resolve_clips(job, folder_, tokenizer);
}

ClipShapes CogVideoX::shapes(const Job& job, const Clip& clip) const {
  return clip.shapes(job, folder_);
}

std::string CogVideoX::describe(const Plan& plan, const Clip& clip, DType dtype) const {
  return reelmesh::describe(plan, clip.sizes(folder_.transformer, dtype));
}

ClipCost CogVideoX::cost(const Plan& plan, const Clip& clip, std::int64_t clips,
                         const Precision& precision) const {
  return cogvideox_cost(plan, folder_.transformer, folder_.vae,
                        clip.sizes(folder_.transformer, precision.tensors),
                        {clip.latent_frames, clip.latent_height, clip.latent_width},
                        clip.kept_frames(), clips, precision);
}

Mesh CogVideoX::mesh(const Plan& plan, const Clip& clip, DType dtype) const {
  return denoise_layout(plan, clip.sizes(folder_.transformer, dtype), 0).mesh;
}

std::unique_ptr<DenoiseStage> CogVideoX::denoise(const comm::Group& world, const Plan& plan,
                                                 DType dtype) const {
  return std::make_unique<Denoise>(world, plan, folder_, dtype);
}

std::unique_ptr<DecodeStage> CogVideoX::decode(const comm::Group& world, const Plan& plan,
                                               DType dtype) const {
  return std::make_unique<Decode>(world, plan, folder_, dtype);
}

}  // namespace reelmesh::pipeline
