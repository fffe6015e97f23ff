#pragma once
// Whether the ranks of a job have the same kind of processor, or of GPU, driver and libraries.
#include <string>
#include <vector>

#include "comm/group.hpp"
#include "job/job.hpp"
#include "tensor/device.hpp"

namespace reelmesh {

/// The facts that are not the same on all ranks, and which ranks have which value: "GPU: NVIDIA
/// H100 (ranks 0-6), NVIDIA A100 (rank 7); cuDNN: …". of_ranks: of each rank, in the same order.
/// Empty if they are the same.
std::string differences_text(const std::vector<std::vector<Fact>>& of_ranks);

/// Compares what the bits of results on the GPUs of the ranks depend on (facts_of). If it differs,
/// bits may depend on the layout: Error(unavailable) on all ranks, with numerics.reproducible = no
/// a warning. Collective.
void require_like_gpus(const comm::Group& world, const Job& job, Device device);

/// The same of the processors, whose vector instructions decide in which order oneDNN's kernels add
/// (ops::vector_instructions). Errors and warnings as above. Collective.
void require_like_processors(const comm::Group& world, const Job& job);

}  // namespace reelmesh
