#pragma once
// The values that are trained, and what the optimizer keeps of them. Each rank of a group has the
// part of which it computes the gradients; the groups of all replicas have the same.
#include "models/common/trainable.hpp"
#include "store/training_restart.hpp"
#include "train/optimizer.hpp"

namespace reelmesh::train {

/// B [out, rank] as LoraValues::up, and back. float32, on the host.
Tensor transposed(const Tensor& x);

/// sum += gradient: float32 on the host, of one shape.
void add_to(Tensor& sum, const Tensor& gradient);

class Parameters {
 public:
  /// The matrices of a model that is trained: for a LoRA A uniform within ±1/√in and B zero, or
  /// both as in settings.lora.init; parameters as in the checkpoint. The same values for every
  /// number of ranks. columns: how ranks of `group` divide them. host: where they are; in a
  /// dry run that of shapes. Errors as Lora::open; Error(data) if the LoRA has other modules or
  /// other ranks.
  Parameters(const comm::Group& group, const Trainable& model, const TokenColumns& columns,
             const TrainSettings& settings, Device host = {});

  /// An array for a gradient of this rank's part of all matrices, float32 on the host; without
  /// values.
  Tensor empty_gradient() const;
  /// The part of such an array that is of a matrix.
  Tensor part(const Tensor& gradient, std::size_t matrix) const;
  std::int64_t size() const { return values_.numel(); }
  /// Adds the gradient of one sample, as a whole or matrix by matrix. To be called in the order of
  /// samples.
  void add(const Tensor& gradient);
  void add(std::size_t matrix, const Tensor& gradient);

  /// The norm of the gradients' sum divided by the number of samples, over all parts. Squares are
  /// added exactly, so that it does not depend on how matrices are cut; NaN if there is one.
  /// Collective over the group.
  double gradient_norm_together(std::int64_t samples) const;
  /// Updates the values by the mean of the gradients, and sets the sum to zero. step: from 0.
  /// factor: of clip_factor().
  void update(std::int64_t step, double rate, double factor, std::int64_t samples);

  /// Matrices [first, first + count), as MatrixValues; they may share the memory of this object.
  /// Collective over the group.
  std::vector<Tensor> values_together(std::size_t first, std::size_t count) const {
    return whole_together(values_, first, count);
  }
  /// The same of what is to be written: with settings.ema the running mean of the values.
  std::vector<Tensor> results_together(std::size_t first, std::size_t count) const {
    return whole_together(settings_.ema ? mean_ : values_, first, count);
  }

  /// The state, for writing and reading: arrays over `world` that share the memory of this object.
  /// ranks: those of the world that have parts, in the order of `group`; each rank of a replica
  /// passes its own group's to read, and those of the first replica to write.
  std::vector<TrainingArray> arrays(const comm::Group& world, const std::vector<int>& ranks);

 private:
  struct Matrix : TrainedMatrix {
    std::int64_t first = 0;  ///< of this rank's elements in the arrays below
  };
  void draw();
  void read(const std::vector<LoraTarget>& targets);
  /// Keeps this rank's columns of `whole`.
  void set(const Matrix& matrix, const Tensor& whole);
  std::vector<Tensor> whole_together(const Tensor& parts, std::size_t first,
                                     std::size_t count) const;
  Box own_box_of(const Matrix& matrix, int rank) const;

  comm::Group group_;
  TokenColumns columns_;
  const TrainSettings& settings_;
  std::vector<Matrix> matrices_;
  /// This rank's elements. Moments and mean are empty unless they are needed.
  Tensor values_, gradients_, first_, second_, mean_;
};

}  // namespace reelmesh::train
