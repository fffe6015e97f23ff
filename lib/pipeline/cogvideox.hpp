#pragma once
#include "models/cogvideox/folder.hpp"
#include "pipeline/family.hpp"

namespace reelmesh::pipeline {

/// CogVideoX 2b, 5b and 1.5: its folder, clips (clip.hpp) and stages (stages.hpp) as a family.
class CogVideoX final : public Family {
 public:
  explicit CogVideoX(const ModelPaths& paths) : folder_(CogVideoXFolder::open(paths)) {}

  const ModelPaths& paths() const override { return folder_.paths; }
  void check_weights() const override { folder_.check_weights(); }
  const T5Config& text_encoder() const override { return folder_.text_encoder; }
  Checkpoint text_encoder_weights() const override { return folder_.text_encoder_weights(); }
  std::vector<Clip> clips(const Job& job, const Tokenizer& tokenizer) const override;
  ClipShapes shapes(const Job& job, const Clip& clip) const override;
  std::string describe(const Plan& plan, const Clip& clip, DType dtype) const override;
  ClipCost cost(const Plan& plan, const Clip& clip, std::int64_t clips,
                const Precision& precision) const override;
  Mesh mesh(const Plan& plan, const Clip& clip, DType dtype) const override;
  std::unique_ptr<DenoiseStage> denoise(const comm::Group& world, const Plan& plan,
                                        DType dtype) const override;
  std::unique_ptr<DecodeStage> decode(const comm::Group& world, const Plan& plan,
                                      DType dtype) const override;

 private:
  CogVideoXFolder folder_;
};

}  // namespace reelmesh::pipeline
