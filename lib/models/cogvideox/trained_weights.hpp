#pragma once
// The parameters of CogVideoX's transformer that a training of all weights changes, as matrices
// that ranks divide.
#include <map>
#include <string>
#include <vector>

#include "models/cogvideox/config.hpp"
#include "models/common/trainable.hpp"

namespace reelmesh {

/// Parameters of a block, in the order of TrainedWeights. A bias follows its weight.
enum class BlockWeight {
  query,
  key = query + 2,
  value = key + 2,
  out = value + 2,
  up = out + 2,
  down = up + 2,
  query_norm = down + 2,
  key_norm = query_norm + 2,
  norm1 = key_norm + 2,
  norm2 = norm1 + 2,
  modulation1 = norm2 + 2,
  modulation2 = modulation1 + 2,
  count = modulation2 + 2
};
/// Those outside the blocks, after them.
enum class OuterWeight {
  time1,
  time2 = time1 + 2,
  text = time2 + 2,
  patch = text + 2,
  norm_final = patch + 2,
  modulation_out = norm_final + 2,
  norm_out = modulation_out + 2,
  out = norm_out + 2,
  count = out + 2
};

class TrainedWeights {
 public:
  explicit TrainedWeights(const CogVideoXConfig& config);

  std::size_t index(std::int64_t block, BlockWeight weight) const {
    return static_cast<std::size_t>(block) * static_cast<std::size_t>(BlockWeight::count) +
           static_cast<std::size_t>(weight);
  }
  std::size_t index(OuterWeight weight) const {
    return matrices_.size() - static_cast<std::size_t>(OuterWeight::count) +
           static_cast<std::size_t>(weight);
  }
  /// Names are those of checkpoints.
  const std::vector<TrainedMatrix>& matrices() const { return matrices_; }
  std::size_t index(const std::string& name) const { return by_name_.at(name); }
  const Shape& shape(std::size_t index) const { return shapes_[index]; }  ///< in checkpoints

 private:
  /// A layer's weight [out, in], with this shape in checkpoints, and its bias. by_outputs: ranks
  /// divide its outputs, not its inputs.
  void add_linear(const std::string& name, std::int64_t in, std::int64_t out, bool by_outputs,
                  Shape shape = {});
  void add_norm(const std::string& name, std::int64_t channels);
  void add(TrainedMatrix matrix, Shape shape);

  std::vector<TrainedMatrix> matrices_;
  std::vector<Shape> shapes_;
  std::map<std::string, std::size_t> by_name_;
};

}  // namespace reelmesh
