#pragma once
// Optimizers: how parameters follow their gradients. Elementwise, so that whichever rank updates an
// element computes the same bits. Host only.
//
// To add one: a row of the table in optimizer.cpp. Options, their fingerprint, memory, saved states
// and messages follow from the row.
#include <cstdint>
#include <span>
#include <string_view>

namespace reelmesh::ops {

/// What optimizers can be told beside the learning rate. Each one reads those that its row names.
struct OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.95, weight_decay = 1e-4, epsilon = 1e-8, momentum = 0;
};

/// What an update of all parameters has in common.
struct Update {
  std::int64_t step = 1;  ///< number of updates with this one
  double rate = 0;        ///< the learning rate
  double factor = 1;      ///< by which gradients are multiplied
};

/// An optimizer.
struct Optimizer {
  using Setting = double OptimizerSettings::*;

  std::string_view name;  ///< as users write it, and in files
  std::span<const Setting> settings;
  /// Names of the running means that it keeps of each parameter's gradients, at most two.
  std::span<const std::string_view> (*moments)(const OptimizerSettings& settings);
  /// Updates some parameters and their moments in place; the gradients are 0 then. Spans have the
  /// same length, that of moments that are not kept is 0; moments are 0 before the first update.
  void (*update)(std::span<float> parameters, std::span<float> gradients, std::span<float> first,
                 std::span<float> second, const Update& by, const OptimizerSettings& settings);

  bool uses(Setting setting) const;
};

/// AdamW as torch.optim.AdamW of PyTorch 2 on the CPU (decoupled weight decay, both bias
/// corrections, its order of operations in float32), Lion as in its paper (arXiv:2302.06675,
/// algorithm 2), SGD as torch.optim.SGD without dampening and weight decay: results agree to
/// rounding.
std::span<const Optimizer> optimizers();
/// Error(internal) if there is none.
const Optimizer& optimizer_named(std::string_view name);

/// Optimizer::update with lengths that are checked: Error(internal) if they differ.
void update(const Optimizer& optimizer, std::span<float> parameters, std::span<float> gradients,
            std::span<float> first, std::span<float> second, const Update& by,
            const OptimizerSettings& settings);

}  // namespace reelmesh::ops
