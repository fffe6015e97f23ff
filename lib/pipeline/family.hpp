#pragma once
// The one place where the pipeline looks at which family a model is of: by the _class_name of
// model_index.json. A family says what a job's clips are, and how they are denoised and decoded;
// encoding, hand-overs and writing are the same for all.
#include <functional>
#include <memory>

#include "comm/group.hpp"
#include "models/t5/t5.hpp"
#include "pipeline/batch.hpp"
#include "plan/cost.hpp"

namespace reelmesh::pipeline {

/// A transformer and a sampler on the denoising groups, each of which holds all weights. The batch
/// at place i of the queue goes to group i modulo their number.
class DenoiseStage {
 public:
  DenoiseStage(const comm::Group& world, const Plan& plan);
  virtual ~DenoiseStage() = default;
  DenoiseStage(const DenoiseStage&) = delete;
  DenoiseStage& operator=(const DenoiseStage&) = delete;

  /// The weights, on the device on which the stage then computes.
  void load(Device device);
  virtual void release() = 0;  ///< the weights
  std::size_t replicas() const { return plan_.denoise.size(); }
  bool works_on(std::size_t place) const { return groups_[place % replicas()].member(); }
  /// Where the text embeddings of a clip of the batch at this place of the queue have to be.
  virtual Layout context_layout(const Clip& clip, std::size_t place) const = 0;
  /// contexts: of each clip [token, branch, channel] in context_layout, on the host or the device.
  /// → of each clip float32 latents [frame, channel, row, column] on the host, without dropped
  /// frames, in the boxes in which they were made. step: called after each sampler step of all
  /// clips on the ranks that work on them.
  virtual std::vector<Sharded> operator()(const Batch& batch, std::size_t place,
                                          const std::vector<Sharded>& contexts,
                                          const std::function<void()>& step) const = 0;

 protected:
  virtual void read_weights(Device device) = 0;

  comm::Group world_;
  Plan plan_;
  std::vector<comm::Group> groups_;  ///< of each replica
};

/// An autoencoder's decoder on the decode group.
class DecodeStage {
 public:
  DecodeStage(const comm::Group& world, const Plan& plan);
  virtual ~DecodeStage() = default;
  DecodeStage(const DecodeStage&) = delete;
  DecodeStage& operator=(const DecodeStage&) = delete;

  /// The weights, on the device on which the stage then computes.
  void load(Device device);
  virtual void release() = 0;  ///< the weights
  const comm::Group& group() const { return group_; }
  /// Where latents [frame, channel, row, column] have to be, of an array over the world.
  virtual Layout latents(const Shape& global) const = 0;
  /// Where text embeddings [token, branch, channel] have to be to be written: cut by tokens.
  Layout context(const Shape& global) const;
  /// An array that is in one of these layouts, over the decode group alone.
  Sharded within(const Sharded& x) const;
  /// latents: on the host, over the decode group → uint8 [frame, row, column, 3], also there.
  virtual Sharded operator()(const Clip& clip, const Sharded& latents) const = 0;

 protected:
  virtual void read_weights(Device device) = 0;

  comm::Group world_, group_;
  RankRange ranks_;
};

class Family {
 public:
  /// Reads the small files of a model. Error(no_input) for missing folders and files, Error(data)
  /// for a family that is not known and for parts that do not fit together.
  static std::unique_ptr<const Family> open(const ModelPaths& paths);

  virtual ~Family() = default;
  Family() = default;
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  virtual const ModelPaths& paths() const = 0;
  /// Headers of all weights: every tensor that a run needs is there, in its shape. Error(data).
  virtual void check_weights() const = 0;
  virtual const T5Config& text_encoder() const = 0;
  virtual Checkpoint text_encoder_weights() const = 0;

  /// The clips of a job; defaults come from the checkpoint. Warns of prompts that are cut.
  /// Error(usage) for what the model cannot make, naming option, clip, what was found and what is
  /// expected.
  virtual std::vector<Clip> clips(const Job& job, const Tokenizer& tokenizer) const = 0;
  /// The arrays that the job keeps of a clip.
  virtual ClipShapes shapes(const Job& job, const Clip& clip) const = 0;
  /// Several lines for people: who does what with such a clip.
  virtual std::string describe(const Plan& plan, const Clip& clip, DType dtype) const = 0;

  /// What so many such clips, denoised together, cost each rank.
  virtual ClipCost cost(const Plan& plan, const Clip& clip, std::int64_t clips,
                        const Precision& precision) const = 0;

  /// How the ranks of a denoising group stand with such a clip: those of a row exchange most.
  virtual Mesh mesh(const Plan& plan, const Clip& clip, DType dtype) const = 0;

  virtual std::unique_ptr<DenoiseStage> denoise(const comm::Group& world, const Plan& plan,
                                                DType dtype) const = 0;
  virtual std::unique_ptr<DecodeStage> decode(const comm::Group& world, const Plan& plan,
                                              DType dtype) const = 0;
};

}  // namespace reelmesh::pipeline
