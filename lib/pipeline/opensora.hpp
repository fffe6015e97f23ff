#pragma once
#include "models/opensora/folder.hpp"
#include "pipeline/family.hpp"

namespace reelmesh::pipeline {

/// Open-Sora 1.0 (STDiT, IDDPM) and 1.2 (STDiT3, rectified flow). A clip has one branch of text,
/// its prompt: the unconditional one is the transformer's own null caption.
class OpenSora final : public Family {
 public:
  explicit OpenSora(const ModelPaths& paths) : folder_(OpenSoraFolder::open(paths)) {}

  const ModelPaths& paths() const override { return folder_.paths; }
  void check_weights() const override { folder_.check_weights(); }
  const T5Config& text_encoder() const override { return folder_.text_encoder; }
  Checkpoint text_encoder_weights() const override { return folder_.text_encoder_weights(); }
  /// Prompts are cleaned first, as in the training, and the text encoder gets them without padding,
  /// which the reference masks.
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
  OpenSoraFolder folder_;
};

}  // namespace reelmesh::pipeline
