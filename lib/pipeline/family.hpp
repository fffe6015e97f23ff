#pragma once
// What a family of models says to the pipeline: what a clip is, what it costs, and its parts.
// Everything else is the same for all families.
#include <memory>

#include "models/common/decoder.hpp"
#include "models/common/denoiser.hpp"
#include "models/common/memory.hpp"
#include "models/t5/t5.hpp"
#include "pipeline/clip.hpp"
#include "plan/workload.hpp"

namespace reelmesh::pipeline {

class Family {
 public:
  using Open = std::unique_ptr<const Family> (*)(const ModelPaths& paths);

  /// The family of the model's _class_name in model_index.json. Reads the small files of the model.
  /// Error(no_input) for missing folders and files, Error(data) for a family that is not known and
  /// for parts that do not fit together.
  static std::unique_ptr<const Family> open(const ModelPaths& paths);
  /// Makes a family known by the _class_name of its models.
  static void add(const std::string& pipeline_class, Open open);

  virtual ~Family() = default;
  Family() = default;
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  virtual const ModelPaths& paths() const = 0;
  /// Headers of all weights: every tensor that a run needs is there, in its shape. Error(data).
  virtual void check_weights() const = 0;
  virtual const T5Config& text_encoder() const = 0;

  /// The clips of a job. Warns of prompts that are cut. Error(usage) for what the model cannot
  /// make, naming option, clip, what was found and what is expected.
  std::vector<Clip> clips(const Job& job, const Tokenizer& tokenizer) const;

  /// What so many clips like this one, denoised together, ask of the ranks. text_tokens: of the
  /// longest text of such clips.
  virtual ClipWorkload workload(const Clip& clip, std::int64_t text_tokens, std::int64_t together,
                                const Precision& precision) const = 0;

  /// The parts with their weights, on the device on which they then compute with these numerics.
  virtual std::unique_ptr<const Denoiser> denoiser(DType dtype, Device device,
                                                   const Numerics& numerics) const = 0;
  virtual std::unique_ptr<const Decoder> decoder(DType dtype, Device device,
                                                 const Numerics& numerics) const = 0;

 protected:
  virtual ClipDefaults defaults() const = 0;
  /// Error(usage) for options that other families have.
  virtual void check_options(const Job& /*job*/) const {}
  /// Texts, shapes and sampling of a clip whose format.size and record say what is asked for.
  virtual void complete(Clip& clip, const Job& job, const ClipRequest& request,
                        const Tokenizer& tokenizer) const = 0;
};

/// The memory of a stage whose weights are these tensors while they are loaded: some of them twice.
StageMemory memory_of_weights(const ExpectedShapes& tensors, const Precision& precision);
/// The same with what the stage needs at its largest moment, where that is more.
StageMemory with_working(StageMemory stage, std::int64_t working);

}  // namespace reelmesh::pipeline
