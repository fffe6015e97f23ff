#pragma once
// The three stages of the pipeline. Each lives on a group of ranks, returns values placed on that
// group, and does nothing on the ranks outside it. Values travel as arrays over the whole world, of
// which ranks outside a group hold empty boxes.
#include <optional>

#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/transformer.hpp"
#include "pipeline/clip.hpp"
#include "plan/plan.hpp"

namespace reelmesh::pipeline {

/// Moves an array from the ranks and cuts of one group to those of the next, straight from holder
/// to holder. Ranks that neither give nor take return at once.
Sharded hand_over(const Sharded& x, const Layout& to);

/// T5, its layers on the ranks of the text group by the device map. Sequences follow one another
/// through the ranks, so that several are busy at once.
class Encode {
 public:
  Encode(const comm::Group& world, const Plan& plan, const CogVideoXFolder& model, DType dtype);
  void load();
  void release();
  /// → [token, branch, channel] on the rank that has the final norm.
  Sharded operator()(const Clip& clip);

 private:
  Tensor encode(const std::vector<std::int32_t>& ids);

  comm::Group world_;
  RankRange group_;
  std::vector<DeviceMap::Stage> stages_;
  const CogVideoXFolder& model_;
  DType dtype_;
  std::vector<std::optional<T5Layers>> layers_;  ///< of each stage, on the rank that holds it
  // Clips of a job mostly share their negative prompt: the last one is kept.
  std::vector<std::int32_t> last_negative_;
  Tensor last_negative_embedding_;
};

/// The transformer and the sampler. Every replica of the denoising group holds all weights.
class Denoise {
 public:
  Denoise(const comm::Group& world, const Plan& plan, const CogVideoXFolder& model, DType dtype);
  void load();
  std::size_t replicas() const { return plan_.denoise.size(); }
  /// Where the text embeddings of the clip at this place of the queue have to be.
  Layout context_layout(const Clip& clip, std::size_t place) const;
  /// context: [token, branch, channel] in context_layout. → float32 latents
  /// [frame, channel, row, column] without dropped frames, in the boxes in which they were made.
  /// step: called after each sampler step on the ranks that work on the clip.
  Sharded operator()(const Clip& clip, std::size_t place, const Sharded& context,
                     const std::function<void()>& step) const;
  bool works_on(std::size_t place) const;

 private:
  DenoiseLayout layout(const Clip& clip, std::size_t place) const;

  comm::Group world_;
  Plan plan_;
  const CogVideoXFolder& model_;
  DType dtype_;
  std::vector<comm::Group> groups_;  ///< of each replica
  std::optional<CogVideoXTransformer> transformer_;
};

/// The autoencoder's decoder, images cut over the decode group.
class Decode {
 public:
  Decode(const comm::Group& world, const Plan& plan, const CogVideoXFolder& model, DType dtype);
  void load();
  const comm::Group& group() const { return group_; }
  /// Where latents [frame, channel, row, column] have to be, of an array over the world.
  Layout latents(const Shape& global) const;
  /// Where text embeddings [token, branch, channel] have to be to be written: cut by tokens.
  Layout context(const Shape& global) const;
  /// An array that is in one of these layouts, over the decode group alone.
  Sharded within(const Sharded& x) const;
  /// latents: over the decode group → uint8 [frame, row, column, 3].
  Sharded operator()(const Sharded& latents) const;

 private:
  comm::Group world_, group_;
  RankRange ranks_;
  std::vector<double> speeds_;
  const CogVideoXFolder& model_;
  DType dtype_;
  std::optional<CogVideoXDecoder> decoder_;
};

}  // namespace reelmesh::pipeline
