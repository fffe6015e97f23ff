#pragma once
// The embedding of a timestep on the host, for TeaCache's rule (sampler/step_cache.hpp).
#include <vector>

#include "weights/checkpoint.hpp"

namespace reelmesh {

/// linear_2(silu(linear_1(x))) in float32 with sums in float64 in the order of the channels, on the
/// host, whatever the type and device of the model.
class EmbeddingLayers {
 public:
  /// Reads <name>.linear_1 [out, in] and .linear_2 [out, out]. Errors as Checkpoint::load.
  EmbeddingLayers(const Checkpoint& weights, const std::string& name, std::int64_t in,
                  std::int64_t out);
  /// x: float32 [1, in], on the host.
  std::vector<float> operator()(const Tensor& x) const;

 private:
  struct Layer {
    std::size_t in;
    std::vector<float> weight, bias;
    std::vector<float> operator()(const std::vector<float>& x) const;
  };
  Layer first_, second_;
};

/// For each vector mean |x − x′| / mean |x′|, where x′ is the one before; [0] is 0. Sums in
/// float64.
std::vector<double> relative_changes(const std::vector<std::vector<float>>& vectors);

}  // namespace reelmesh
