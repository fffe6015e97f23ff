#pragma once
// The parameters of a model that a training of all weights changes, as matrices that ranks divide.
#include <map>
#include <string>
#include <vector>

#include "models/common/trainable.hpp"
#include "weights/checkpoint.hpp"

namespace reelmesh {

class TrainedWeights {
 public:
  /// A layer's weight [out, in], with this shape in checkpoints, and its bias. by_outputs: ranks
  /// divide its outputs, not its inputs.
  void add_linear(const std::string& name, std::int64_t in, std::int64_t out, bool by_outputs,
                  Shape shape = {});
  /// Weight and bias of a norm.
  void add_norm(const std::string& name, std::int64_t channels);
  /// A vector, or a table whose columns ranks divide; by its whole name.
  void add_vector(const std::string& name, std::int64_t channels);
  void add_table(const std::string& name, std::int64_t rows, std::int64_t channels);

  /// Names are those of checkpoints.
  const std::vector<TrainedMatrix>& matrices() const { return matrices_; }
  std::size_t index(const std::string& name) const { return by_name_.at(name); }
  const Shape& shape(std::size_t index) const { return shapes_[index]; }  ///< in checkpoints

  /// A parameter's value in a checkpoint: float32 [row, column] on the host.
  Tensor initial(const Checkpoint& checkpoint, std::size_t index) const;
  /// The checkpoint with these values; tensors that are not trained have their own. Both arguments
  /// and this object must outlive what is loaded from it.
  Checkpoint with_values(const Checkpoint& checkpoint, const MatrixValues& values) const;

 private:
  void add(TrainedMatrix matrix, Shape shape);

  std::vector<TrainedMatrix> matrices_;
  std::vector<Shape> shapes_;
  std::map<std::string, std::size_t> by_name_;
};

}  // namespace reelmesh
