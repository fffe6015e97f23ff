#pragma once
// The interface between a model family and the pipeline: how a clip is set up, what it costs, and
// the model's parts. Everything else is shared by all families.
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "comm/group.hpp"
#include "job/clip.hpp"
#include "layout/weight_stream.hpp"
#include "models/common/decoder.hpp"
#include "models/common/denoiser.hpp"
#include "models/common/encoder.hpp"
#include "models/common/trainable.hpp"
#include "models/common/vision_encoder.hpp"
#include "models/t5/config.hpp"
#include "plan/workload.hpp"
#include "sampler/training_noise.hpp"
#include "weights/checkpoint.hpp"

namespace reelmesh {

/// Values that many clips share, such as noise schedules; keeps only so many of them. Not for
/// several threads.
template <class Key, class Value>
class Shared {
 public:
  /// The value of this key, made by make() unless it is kept.
  template <class Make>
  Value get(const Key& key, const Make& make) {
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    constexpr std::size_t max_kept = 64;
    if (values_.size() == max_kept) values_.clear();
    return values_.emplace(key, make()).first->second;
  }

 private:
  std::map<Key, Value> values_;
};

/// Whether clips that begin from an image end with another one.
enum class LastImage { never, optional, always };
/// The weights of a part of a model.
using OpenPart = std::function<Checkpoint(ModelPart part)>;

class Family {
 public:
  using Open = std::unique_ptr<const Family> (*)(const ModelPaths& paths);

  /// Opens a model with the family registered for its _class_name in model_index.json. Reads the
  /// model's configs, no weights. Error(no_input) for missing folders and files, Error(data) for an
  /// unknown _class_name and for parts that do not match each other.
  static std::unique_ptr<const Family> open(const ModelPaths& paths);
  /// How to open a model with this model_index.json. Error(data) for an unknown _class_name.
  static Open find(const std::filesystem::path& model_index);
  /// Registers a family under the _class_name of its models.
  static void add(const std::string& pipeline_class, Open open);

  virtual ~Family() = default;
  Family() = default;
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  /// Of the scripts in jobs/: "cogvideox".
  virtual const char* name() const = 0;
  virtual const ModelPaths& paths() const = 0;
  /// The weights of a part, the transformer's with its LoRAs. Errors as ModelPaths::open.
  virtual Checkpoint open(ModelPart part) const { return paths().open(part); }
  /// Checks, by the headers of all weight files, that every tensor which the parts ask for exists
  /// in its expected shape; those of the encoder if the model takes images, or with
  /// `encodes_video`; nothing of parts that have no weights (ModelPaths::has_weights). Error(data),
  /// and errors as Checkpoint::open.
  void check_weights(bool encodes_video) const;
  /// What of the model's folder has no effect, for warnings. Errors as check_weights.
  virtual std::vector<std::string> unused_contents() const { return {}; }
  virtual const T5Config& text_encoder() const = 0;
  /// Error(data) if it has more ids than the text encoder's embedding has rows. For a plan without
  /// a tokenizer, one without vocabulary.
  Tokenizer open_tokenizer() const;
  /// How many frames the model makes where `frames` are asked for, unless it begins from a video,
  /// of which it may use fewer.
  virtual std::int64_t made_frames(std::int64_t frames) const { return frames; }
  /// Whether the model makes clips that begin from such a file; none: from noise alone.
  virtual bool takes(InputKind kind) const { return kind == InputKind::none; }
  virtual LastImage last_image() const { return LastImage::never; }
  /// Settings of clips unless the job gives them.
  virtual ClipDefaults defaults() const = 0;
  /// A hash of what the results depend on: weights_hash, unless parts have no weight files.
  /// Collective.
  virtual std::string weights_hash(const comm::Group& world) const;

  /// The clips of a job, all of which are checked. Warns of prompts that are cut off, and of
  /// numbers of frames that the model cannot make. inputs: the
  /// facts of all files of the job; logs how each is used. Error(usage) for settings that the
  /// model does not support, naming option, clip, what was found and what is expected;
  /// Error(stopped) as stop::leave_if_requested.
  ClipList clips(const Job& job, const Tokenizer& tokenizer, const Inputs& inputs = {}) const;
  /// One of them, without the steps that are saved of it. Errors as clips().
  Clip clip(const Job& job, int index, const Tokenizer& tokenizer, const Inputs& inputs) const;

  /// The sizes of a clip's stages, and the layouts that its model can do: all of a workload but
  /// what dry runs count. text_tokens: of the longest text of such clips.
  virtual ClipWorkload workload(const Clip& clip, std::int64_t text_tokens) const = 0;
  /// What distinguishes a rank of this layout from others: ranks with equal numbers compute and
  /// send the same, and need the same memory.
  virtual std::vector<std::int64_t> share(const DenoiseLayout& layout, int rank) const = 0;
  /// Layers of the transformer: blocks of one kind, in a row.
  virtual std::int64_t layers() const = 0;

  /// 2 of models of two transformers, which divide the steps by their timesteps; otherwise 1.
  virtual int experts() const { return 1; }
  /// That of these which takes steps with this timestep, as Denoiser::expert.
  virtual int expert(double /*timestep*/) const { return 0; }

  // The model's parts, made of weights that may have shapes only. They compute on weights.device()
  // with weights.numerics().
  /// The transformer, or both of a model of two, with so many of its layers. `open` is called while
  /// the result is used if an expert is loaded later. Collective over placement.group, unless
  /// weights are replicated.
  virtual std::unique_ptr<const Denoiser> denoiser(const OpenPart& open, DType dtype,
                                                   const WeightPlacement& placement,
                                                   std::int64_t layers) const = 0;
  virtual std::unique_ptr<const Decoder> decoder(const Checkpoint& weights, DType dtype) const = 0;
  /// Only of families that take images or videos, or whose training encodes videos.
  virtual std::unique_ptr<const Encoder> encoder(const Checkpoint& weights, DType dtype) const;
  /// How the images that clips begin from become the pixels of a vision encoder, whose rows the
  /// transformer attends to; none: the model has no such encoder.
  virtual std::optional<VisionPixels> vision_pixels() const { return std::nullopt; }
  /// Only of models with vision_pixels().
  virtual std::unique_ptr<const VisionEncoder> vision_encoder(const Checkpoint& weights,
                                                              DType dtype) const;
  /// Only of families that can be trained; otherwise, and for models of them that cannot,
  /// Error(usage). Errors and collective as denoiser().
  virtual std::unique_ptr<Trainable> trainable(const Checkpoint& weights, DType dtype,
                                               const WeightPlacement& placement,
                                               const TrainingMode& mode) const;
  // In a training the image of a clip is its first frame.
  /// Of models whose image gets other noise in each step of a training, so that it is encoded
  /// there: the factor of its latents, which the transformer takes beside the noisy ones.
  virtual std::optional<double> image_scale() const { return std::nullopt; }
  /// Of models whose image has no noise: what the transformer takes of it is encoded with the
  /// video, before the steps, as for clips that are made: the latents of a video that begins with
  /// it and is grey, and with vision_pixels() the rows of that encoder.
  virtual bool encodes_image_once() const { return false; }
  /// How the diffusion process adds noise to clips of this size in a training; likewise, and for
  /// settings of the training that the family does not support.
  virtual TrainingNoise training_noise(const Job& job, const VideoSize& size) const;

 protected:
  /// Error(usage) for options that this family does not support.
  virtual void check_options(const Job& /*job*/) const {}
  /// Whether its samplers follow ClipSettings::flow_shift and noise_levels; complete() then sets
  /// the first where it is not given.
  virtual bool takes_flow_shift() const { return false; }
  /// Of teacache, if they are known for this checkpoint.
  virtual std::optional<CacheCoefficients> cache_coefficients() const { return std::nullopt; }
  /// For teacache the distances that computed_steps() takes, one per timestep; empty unless they
  /// are known before a clip is denoised. Reads weights of the transformer.
  virtual std::vector<double> step_distances(std::span<const double> /*timesteps*/) const {
    return {};
  }
  /// Whether Denoiser::Prepared::change_together() gives these distances.
  virtual bool distances_depend_on_values() const { return false; }
  /// Sets texts, shapes and sampling of a clip whose format.size, record and input.file and .frames
  /// are set, of models of two transformers settings.guidance_2, too; also how the input is
  /// encoded.
  virtual void complete(Clip& clip, const Job& job, const ClipRequest& request,
                        const Tokenizer& tokenizer) const = 0;

 private:
  /// Sets the guidance of the second transformer if it is not given. Error(usage) without one.
  void set_second_guidance(Clip& clip, const ClipRequest& request) const;
  /// Sets which steps of a clip with a cache are computed. Error(usage) if that is not defined.
  void set_computed_steps(Clip& clip, const ClipRequest& request) const;
  /// step_distances() of the steps of a clip whose sampling is set. Error(unavailable) if the
  /// transformer has no weights.
  std::vector<double> distances_of(const Clip& clip) const;
  /// Error(usage) unless the model takes what the clip begins from and ends with; Error(data) for
  /// an image that its vision encoder does not take.
  void check_input(const Clip& clip, const Inputs& inputs) const;
  /// The same of a clip that begins from an image.
  void check_images(const Clip& clip, const Inputs& inputs) const;

  mutable Shared<std::vector<double>, std::vector<double>> distances_;  // by timesteps
};

/// Opens the model of a job and checks its weights, those of the encoder if it encodes videos;
/// warns of tensors that nothing reads and of keys that are not followed. Errors as Family::open
/// and check_weights.
void check_model(const Job& job);

}  // namespace reelmesh
