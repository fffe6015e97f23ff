#pragma once
// What a training minimises: the mean over all elements of the latents.
#include <optional>

#include "models/common/trainable.hpp"
#include "sampler/iddpm_loss.hpp"

namespace reelmesh {

/// The sum of the losses of this rank's elements, added exactly, pixel by pixel: squares of
/// prediction − target, weighted, or iddpm's. prediction: this rank's box, float32 [frame, channel,
/// row, column] on the host. Its first channels are those of the target; the next as many, if there
/// are any, are the variance that iddpm learns, and otherwise not trained. elements: of the target,
/// on all ranks. gradient: gets that of the mean, shaped as the prediction, unless null.
ops::ExactSum training_loss(const std::optional<IddpmLoss>& iddpm, const TrainingSample& sample,
                            const Tensor& prediction, std::int64_t elements, Tensor* gradient);

}  // namespace reelmesh
