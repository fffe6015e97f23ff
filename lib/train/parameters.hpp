#pragma once
// The values that are trained, and what the optimizer keeps of them. Each rank of a replica has the
// part of the values of which it computes the gradients. The ranks of all replicas that have the
// same part divide its rows: each adds the gradients of its rows, and updates them, and has only
// their moments (as ZeRO, arXiv:1910.02054, stage 1).
#include "models/common/trainable.hpp"
#include "store/training_restart.hpp"
#include "train/learning_rate.hpp"

namespace reelmesh::train {

/// B [out, rank] as LoraValues::up, and back. float32, on the host.
Tensor transposed(const Tensor& x);

/// sum += gradient: float32 on the host, of one shape.
void add_to(Tensor& sum, const Tensor& gradient);

class Parameters {
 public:
  /// The matrices of a model that is trained: for a LoRA A uniform within ±1/√in and B zero, or
  /// both as in settings.lora.init; parameters as in the checkpoint. The same values for every
  /// number of ranks. columns: how ranks of `group` divide them. peers: the ranks with the same
  /// part in all replicas, in their order. host: where they are; in a dry run that of shapes.
  /// Errors as Lora::open; Error(data) if the LoRA has other modules or other ranks.
  Parameters(const comm::Group& group, const comm::Group& peers, const Trainable& model,
             const TokenColumns& columns, const TrainSettings& settings, Device host = {});

  /// An array for a gradient of this rank's part of all matrices, float32 on the host; without
  /// values.
  Tensor empty_gradient() const;
  /// The part of such an array that is of a matrix.
  Tensor part(const Tensor& gradient, std::size_t matrix) const;
  std::int64_t size() const { return values_.numel(); }
  /// Adds the gradient of one matrix of one sample, of a single replica. To be called in the order
  /// of samples.
  void add(std::size_t matrix, const Tensor& gradient);
  /// Adds the gradients of one sample of each of the first `replicas` replicas, in their order.
  /// own: as empty_gradient(), on these. Each replica gets the elements that it adds: messages and
  /// memory of about one gradient, for any number of replicas. Collective over the peers.
  void add_together(const Tensor& own, int replicas);

  /// The norm of the gradients' sum divided by the number of samples, over all parts. Squares are
  /// added exactly, so that it does not depend on how matrices are cut; NaN if there is one.
  /// Collective over group and peers.
  double gradient_norm_together(std::int64_t samples) const;
  /// Updates the values by the mean of the gradients, and sets the sum to zero. step: from 0.
  /// factor: of clip_factor(). Collective over the peers.
  void update_together(std::int64_t step, double rate, double factor, std::int64_t samples);

  /// Matrices [first, first + count), as MatrixValues; they may share the memory of this object.
  /// Collective over the group.
  std::vector<Tensor> values_together(std::size_t first, std::size_t count) const {
    return whole_together(values_, 0, first, count);
  }
  /// The same of what is to be written: with settings.ema the running mean of the values.
  /// Collective over group and peers.
  std::vector<Tensor> results_together(std::size_t first, std::size_t count) const;

  /// The state, for writing and reading: arrays over the ranks of all replicas, replica after
  /// replica, that share the memory of this object. After reading, call gather_values_together().
  std::vector<TrainingArray> arrays(const comm::Group& trainers);
  /// The values of all replicas' rows, of which only this one's are as they should be. Collective
  /// over the peers.
  void gather_values_together();

 private:
  struct Matrix : TrainedMatrix {
    std::int64_t first = 0;  ///< number of its first element on this rank
  };
  void draw();
  void read(const std::vector<LoraTarget>& targets);
  /// Keeps this rank's columns of `whole`.
  void set(const Matrix& matrix, const Tensor& whole);
  // parts: elements of this rank's parts, from number `begin` on.
  std::vector<Tensor> whole_together(const Tensor& parts, std::int64_t begin, std::size_t first,
                                     std::size_t count) const;
  Box box_of(const Matrix& matrix, int rank) const { return matrix.box(columns_, rank); }
  Box own_box_of(const Matrix& matrix) const { return box_of(matrix, group_.rank()); }
  std::vector<std::int64_t> borders(int rank) const;
  // Elements from number `begin` on, as many as fit into `all`; own: this replica's, of an array
  // that all of them divide. Both may share memory.
  void gather(const Tensor& own, std::int64_t begin, Tensor& all) const;
  std::int64_t begin() const { return borders_[static_cast<std::size_t>(peers_.rank())]; }
  std::int64_t own_size() const {
    return borders_[static_cast<std::size_t>(peers_.rank()) + 1] - begin();
  }

  std::span<const std::string_view> moment_names() const {
    return settings_.optimizer->moments(settings_.optimizer_settings);
  }

  comm::Group group_, peers_;
  TokenColumns columns_;
  const TrainSettings& settings_;
  std::vector<Matrix> matrices_;
  std::vector<std::int64_t> borders_;  ///< as replica_borders()
  /// This rank's elements.
  Tensor values_;
  /// This replica's of them. Moments and mean are empty unless they are needed.
  Tensor gradients_, mean_;
  /// Each as the optimizer names them; without values from as many as it keeps on.
  std::array<Tensor, 2> moments_;
};

}  // namespace reelmesh::train
