#pragma once
// The interface of a diffusion transformer that is being trained to the training loop.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layout/token_columns.hpp"
#include "models/common/adapter.hpp"
#include "models/common/denoiser.hpp"
#include "ops/exact_sum.hpp"
#include "weights/lora_patterns.hpp"

namespace reelmesh {

/// Which layers get a LoRA, and how large.
struct LoraShape {
  std::vector<std::string> targets;  ///< the ends of modules: "to_q", "ff.net.0.proj"
  // Of modules that no pattern names.
  std::int64_t rank = 64;
  double alpha = 64;  ///< changes are multiplied by alpha / rank
  LoraPatterns<std::int64_t> ranks = {};
  LoraPatterns<double> alphas = {};
  LoraDropout dropout = {};

  /// None if it is not a target.
  std::optional<LoraTarget> target(const std::string& module, std::int64_t in,
                                   std::int64_t out) const;
  /// Error(usage) for a target that no module ends with, and for a key of ranks or alphas that
  /// names none. modules: those of the model that are targets. known: the ends that targets can
  /// have.
  void require_all_used(std::span<const LoraTarget> modules,
                        std::span<const std::string> known) const;
};

/// What of a model is trained, and how.
struct TrainingMode {
  std::optional<LoraShape> lora;  ///< none: all parameters
  /// Blocks keep only their inputs for gradients, and are computed again.
  bool recomputes_blocks = true;
};

/// A matrix that is trained: half of a LoRA (LoraValues), or a parameter of the model.
struct TrainedMatrix {
  std::string name;  ///< MODULE.lora_A or .lora_B; that of a parameter in checkpoints
  std::int64_t rows = 0, columns = 0;
  bool by_rows = false;  ///< ranks divide rows, not columns

  std::int64_t divided() const { return by_rows ? rows : columns; }
  /// The part that a rank has.
  Box box(const TokenColumns& ranks, int rank) const {
    const TokenColumns::Range range = ranks.columns(divided(), rank);
    return by_rows ? Box{{range.begin, 0}, {range.count, columns}}
                   : Box{{0, range.begin}, {rows, range.count}};
  }
  /// The parts of all ranks.
  Layout layout(const TokenColumns& ranks, int count) const {
    std::vector<Box> boxes;
    for (int rank = 0; rank < count; ++rank) boxes.push_back(box(ranks, rank));
    return {{rows, columns}, std::move(boxes)};
  }
};

/// How replicas divide what a rank has of all matrices, one part [row, column] after the other: the
/// replica i has elements [result[i], result[i + 1]), whole rows, as equally as they allow.
std::vector<std::int64_t> replica_borders(std::span<const Box> parts, int replicas);

/// Matrices [first, first + count), whole: float32 [row, column] on the host. Collective over the
/// ranks that have parts of them.
using MatrixValues = std::function<std::vector<Tensor>(std::size_t first, std::size_t count)>;

/// One clip of a training step.
struct TrainingSample {
  std::int64_t number = 0;  ///< of the run, from 0
  double timestep = 0;      ///< whole, unless the diffusion process is one of continuous time
  double weight = 1;        ///< of the squared error
  /// Noisy latents and what the model is to predict of them: this rank's box, float32 [frame,
  /// channel, row, column] on the host.
  Tensor latents, target;
  Tensor text;  ///< [token, 1, channel] of the model's type: this rank's tokens
  /// The latents without noise, likewise; only for losses that need them.
  Tensor clean;
  /// Only of models with a null caption of their own: it takes the place of the text.
  bool drops_caption = false;
  /// Frames per second, for models that are told them; 0: those of the task.
  double fps = 0;
  // Only of models that take an image: as those of Conditioning, on the host.
  Tensor image, vision;
};

/// Takes the gradient of a matrix: of the mean of the losses of all elements; this rank's part,
/// float32 on the host. Called once for each matrix, in any order.
using TakeGradient = std::function<void(std::size_t matrix, const Tensor& gradient)>;

class Trainable {
 public:
  /// Clips of one size on a group of ranks.
  class Prepared {
   public:
    virtual ~Prepared() = default;
    Prepared() = default;
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;
    /// → the sum of the losses of all elements of this rank's box: squares of prediction − target,
    /// unless the model says otherwise. Collective over the group.
    virtual ops::ExactSum gradient_together(const TrainingSample& sample,
                                            const TakeGradient& take) = 0;
    /// That sum alone, with the same bits, by a forward pass. Collective over the group.
    virtual ops::ExactSum losses_together(const TrainingSample& sample) = 0;
    /// Which part of the gradients each rank of the group has.
    virtual const TokenColumns& columns() const = 0;
  };

  virtual ~Trainable() = default;
  Trainable() = default;
  Trainable(const Trainable&) = delete;
  Trainable& operator=(const Trainable&) = delete;

  virtual Device device() const = 0;
  /// What is trained.
  virtual const std::vector<TrainedMatrix>& matrices() const = 0;
  /// The layers that get a LoRA, each with two matrices: A, and B transposed. None if the model's
  /// own parameters are trained.
  virtual const std::vector<LoraTarget>& targets() const = 0;
  /// A parameter's value in the checkpoint: float32 [row, column] on the host. Not of a LoRA.
  virtual Tensor initial(std::size_t matrix) const = 0;
  /// A parameter's shape in checkpoints, of the elements of its matrix. Not of a LoRA.
  virtual const Shape& stored_shape(std::size_t matrix) const = 0;
  /// What the model computes with from now on. Must be called before gradient_together().
  virtual void set_together(const MatrixValues& values) = 0;
  /// task.branches is 1. The model must outlive the result. Collective over task.group.
  virtual std::unique_ptr<Prepared> prepare(const DenoiseTask& task) const = 0;
};

}  // namespace reelmesh
