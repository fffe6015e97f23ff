#pragma once
// The clips of a job and the plan that `run` executes and `plan` prints (forecast/plan_job.hpp).
#include <algorithm>
#include <array>

#include "job/family.hpp"
#include "job/training_replica.hpp"
#include "plan/plan.hpp"
#include "tensor/ledger.hpp"
#include "weights/lora_changes.hpp"

namespace reelmesh {

/// Bytes by ModelPart.
using PartBytes = std::array<std::int64_t, model_parts.size()>;

/// The conditions that a job is planned for, the same on all ranks.
struct Conditions {
  PlanMachine machine;
  DType products = DType::float32;  ///< ops::compute_dtype, of all ranks
  bool on_gpu = false;              ///< planned memory is that of GPUs
  std::int64_t node_bytes = 0;      ///< host memory of the smallest node, on CPUs; 0: unknown
  /// How weights are packed on CPUs: this_processor only if all ranks pack in the same way.
  PackedFor packed_for = PackedFor::this_processor;
  /// Bytes of the parts' weights that come from the disk (forecast/loading.hpp).
  PartBytes on_disk{};
};

/// Conditions of `ranks` ranks with the memory limits and speeds that the job gives. node_of: node
/// of each launched rank. Error(usage) if device.machine is of the other kind of device,
/// Error(unavailable) naming device.memory-limit or device.speeds if their
/// number does not match the ranks.
Conditions plan_conditions(const Job& job, int ranks, int threads, std::vector<int> node_of,
                           DType products, bool on_gpu);

/// By what times are predicted.
struct PredictedBy {
  std::shared_ptr<const MachineTimes> machine;  ///< null: none are
  DType dtype = DType::float32;
  int busy = 1;  ///< ranks of the fullest node
  PartBytes on_disk{};
  bool copies_weights = false;  ///< model.copy-to
  RestartSettings saving;
  /// Seconds of a step as measured / as `machine` gives them, if steps of the job were measured.
  double measured_step = 1;
};

/// The layouts of a job.
struct JobLayout {
  Plan plan;
  /// A plan with fewer, larger replicas for the last `tail_batches` batches, if it is predicted to
  /// complete all clips sooner; with the same sizes and order of ranks.
  std::optional<Plan> tail;
  std::size_t tail_batches = 0;

  /// How many of these batches, which may be fewer than were planned, the tail makes: the last
  /// ones.
  std::size_t tail_of(std::size_t batches) const {
    return tail ? std::min(tail_batches, batches) : 0;
  }
};

struct JobPlan : JobLayout {
  PredictedBy predicted_by;
  std::unique_ptr<const Family> family;
  Inputs inputs;     ///< the files that clips begin from
  LoraMemory loras;  ///< for changing weights while they are read
  std::optional<Tokenizer> tokenizer;
  std::vector<ClipOutline> clips;
  ClipKinds kinds;
  std::string fingerprint;          ///< of clips, as ClipRecord::fingerprint; set by run()
  std::int64_t clip_bytes = 0;      ///< host memory of each rank for its list of clips, and of a
                                    ///< training for the libraries that read them
  std::vector<ClipFormat> formats;  ///< of each element of plan.sizes
  bool on_gpu = false;
  std::vector<ConvolutionShape> convolutions;  ///< on GPUs, of all stages
  std::string products;                ///< how bfloat16 is multiplied, if it is; otherwise empty
  bool unlike_processors = false;      ///< whether packed weights of the ranks may differ
  std::optional<TrainSettings> train;  ///< of a training, whose steps are those of plan.sizes
  TrainingToPlan training;

  /// A clip, made from its request, with the saved step of its outline. job: that of plan_job().
  Clip clip(const Job& job, const ClipOutline& outline) const;
  /// Bytes of the embeddings of a clip's texts, and of its encoded input.
  std::int64_t embedding_bytes(const ClipOutline& clip, DType dtype) const;
  /// Sampler steps of a clip when this job leaves it, those that are saved included.
  std::int64_t end_step(const ClipOutline& clip) const {
    return kinds[clip.kind].end_step(clip.saved_step);
  }

  /// The index in formats and plan.sizes of clips like this one.
  std::size_t size_index(const Clip& clip) const;
  std::size_t size_index(const ClipOutline& clip) const { return size_index(kinds[clip.kind]); }
  /// In one of the two plans.
  const ClipPlan& clip_plan(const Clip& clip, const Plan& of) const {
    return of.sizes[size_index(clip)];
  }
};

}  // namespace reelmesh
