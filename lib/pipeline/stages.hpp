#pragma once
// The three stages of the pipeline. Each lives on a group of ranks, returns values placed on that
// group, and does nothing on the ranks outside it. Values travel as arrays over the whole world, of
// which ranks outside a group hold empty boxes.
#include <optional>

#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/transformer.hpp"
#include "pipeline/family.hpp"

namespace reelmesh::pipeline {

/// Moves an array from the ranks and cuts of one group to those of the next, straight from holder
/// to holder. Ranks that neither give nor take return at once.
Sharded hand_over(const Sharded& x, const Layout& to);

/// T5, its layers on the ranks of the text group by the device map. Sequences follow one another
/// through the ranks, so that several are busy at once.
class Encode {
 public:
  Encode(const comm::Group& world, const Plan& plan, const Family& model, DType dtype);
  /// The weights of this rank's layers, on the device on which they then compute.
  void load(Device device);
  void release();
  /// → [token, branch, channel] on the device of the rank that has the final norm.
  Sharded operator()(const Clip& clip);

 private:
  Tensor encode(const std::vector<std::int32_t>& ids);

  comm::Group world_;
  RankRange group_;
  std::vector<DeviceMap::Stage> stages_;
  const Family& model_;
  DType dtype_;
  Device device_;
  std::vector<std::optional<T5Layers>> layers_;  ///< of each stage, on the rank that holds it
  // Clips of a job mostly share their negative prompt: the last one is kept.
  std::vector<std::int32_t> last_negative_;
  Tensor last_negative_embedding_;
};

/// CogVideoX's transformer and samplers.
class Denoise final : public DenoiseStage {
 public:
  Denoise(const comm::Group& world, const Plan& plan, const CogVideoXFolder& model, DType dtype);
  void release() override { transformer_.reset(); }
  Layout context_layout(const Clip& clip, std::size_t place) const override;
  std::vector<Sharded> operator()(const Batch& batch, std::size_t place,
                                  const std::vector<Sharded>& contexts,
                                  const std::function<void()>& step) const override;

 private:
  void read_weights(Device device) override;

  DenoiseLayout layout(const Clip& clip, std::size_t place) const;

  const CogVideoXFolder& model_;
  DType dtype_;
  std::optional<CogVideoXTransformer> transformer_;
};

/// CogVideoX's decoder, images cut over the decode group.
class Decode final : public DecodeStage {
 public:
  Decode(const comm::Group& world, const Plan& plan, const CogVideoXFolder& model, DType dtype);
  void release() override { decoder_.reset(); }
  Layout latents(const Shape& global) const override;
  Sharded operator()(const Clip& clip, const Sharded& latents) const override;

 private:
  void read_weights(Device device) override;

  std::vector<double> speeds_;
  const CogVideoXFolder& model_;
  DType dtype_;
  std::optional<CogVideoXDecoder> decoder_;
};

}  // namespace reelmesh::pipeline
