#include "job/job_plan.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "job/machine.hpp"

namespace reelmesh {
Conditions plan_conditions(const Job& job, int ranks, int threads, std::vector<int> node_of,
                           DType products, bool on_gpu) {
  const auto count = static_cast<std::size_t>(ranks);
  Conditions conditions;
  conditions.products = products;
  conditions.on_gpu = on_gpu;
  PlanMachine& machine = conditions.machine;
  machine.ranks = ranks;
  machine.threads = threads;
  machine.node_of = std::move(node_of);
  const auto kind = [](bool gpu) { return gpu ? "GPUs" : "CPUs"; };
  require(job.machine == nullptr || job.machine->on_gpu == on_gpu, Status::usage,
          "device.machine: {} has times of {}, expected those of {}, on which the ranks compute",
          job.machine_file.string(), kind(!on_gpu), kind(on_gpu));
  machine.times = job.machine;
  machine.multiprocessors = found_multiprocessors();
  if (machine.multiprocessors == 0 && job.machine != nullptr) {
    machine.multiprocessors = job.machine->multiprocessors;
  }
  machine.program = on_gpu ? program_bytes_on_gpu : program_bytes;
  machine.host_program = on_gpu ? host_program_bytes_of_gpu : 0;
  machine.count_waiting_embeddings = !on_gpu;
  machine.connects_devices = on_gpu && job.transport != Transport::mpi;
  require(job.speeds.empty() || job.speeds.size() == count, Status::unavailable,
          "device.speeds: found {} speeds, expected {}, one for each rank", job.speeds.size(),
          ranks);
  machine.rank_weights.values = job.speeds;
  machine.memory_limits.values = job.memory_limits.size() == 1
                                     ? std::vector<std::int64_t>(count, job.memory_limits.front())
                                     : job.memory_limits;
  require(job.memory_limits.size() <= 1 || job.memory_limits.size() == count, Status::unavailable,
          "device.memory-limit: found {} sizes, expected 1, or {}, one for each rank",
          job.memory_limits.size(), ranks);
  return conditions;
}

Clip JobPlan::clip(const Job& job, const ClipOutline& outline) const {
  Clip clip = family->clip(job, outline.index, *tokenizer, inputs);
  clip.saved_step = outline.saved_step;
  clip.record.fingerprint = fingerprint;
  return clip;
}

std::int64_t JobPlan::embedding_bytes(const ClipOutline& clip, DType dtype) const {
  const Clip& like = kinds[clip.kind];
  return std::ssize(like.texts) * clip.tokens * family->text_encoder().d_model *
             reelmesh::size_of(dtype) +
         (like.input ? numel(like.input_shape()) * reelmesh::size_of(DType::float32) : 0) +
         (like.vision.empty() ? 0 : numel(like.vision) * reelmesh::size_of(dtype));
}

std::size_t JobPlan::size_index(const Clip& clip) const {
  const auto size =
      static_cast<std::size_t>(std::ranges::find(formats, clip.format) - formats.begin());
  expect(size < formats.size(), "clip {} is of no planned format", clip.index());
  return size;
}

}  // namespace reelmesh
