#pragma once
// A job and a machine → clips and the plan that `run` executes and `plan` prints. No MPI: every
// rank computes the same plan.
#include <algorithm>
#include <functional>

#include "job/family.hpp"
#include "job/training_replica.hpp"
#include "plan/plan.hpp"
#include "plan/task_schedule.hpp"
#include "tensor/ledger.hpp"
#include "weights/lora_changes.hpp"

namespace reelmesh {

/// The conditions that a job is planned for, the same on all ranks.
struct Conditions {
  PlanMachine machine;
  DType products = DType::float32;  ///< ops::compute_dtype, of all ranks
  bool on_gpu = false;              ///< planned memory is that of GPUs
  std::int64_t node_bytes = 0;      ///< host memory of the smallest node, on CPUs; 0: unknown
  /// How weights are packed on CPUs: this_processor only if all ranks pack in the same way.
  PackedFor packed_for = PackedFor::this_processor;
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
  int busy = 1;            ///< ranks of the fullest node
  std::int64_t texts = 0;  ///< that are encoded
  /// Seconds of a step as measured / as `machine` gives them, if steps of the job were measured.
  double measured_step = 1;
};

struct JobPlan {
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
  std::string products;            ///< how bfloat16 is multiplied, if it is; otherwise empty
  bool unlike_processors = false;  ///< whether packed weights of the ranks may differ
  Plan plan;
  std::optional<TrainSettings> train;  ///< of a training, whose steps are those of plan.sizes
  TrainingToPlan training;
  /// A plan with fewer, larger replicas for the last `tail_batches` batches, if it is predicted to
  /// complete all clips sooner; with the same sizes and order of ranks.
  std::optional<Plan> tail;
  std::size_t tail_batches = 0;

  /// How many of these batches, which may be fewer than were planned, the tail makes: the last
  /// ones.
  std::size_t tail_of(std::size_t batches) const {
    return tail ? std::min(tail_batches, batches) : 0;
  }
  /// A clip, made from its request, with the saved step of its outline. job: that of plan_job().
  Clip clip(const Job& job, const ClipOutline& outline) const;
  /// Bytes of the embeddings of a clip's texts, and of its encoded input.
  std::int64_t embedding_bytes(const ClipOutline& clip, DType dtype) const;
  /// Sampler steps of a clip, those that are saved included.
  int clip_steps(int clip) const {
    return kinds[clips.at(static_cast<std::size_t>(clip)).kind].sampling.sampler->calls();
  }

  /// The index in formats and plan.sizes of clips like this one.
  std::size_t size_index(const Clip& clip) const;
  std::size_t size_index(const ClipOutline& clip) const { return size_index(kinds[clip.kind]); }
  /// In one of the two plans.
  const ClipPlan& clip_plan(const Clip& clip, const Plan& of) const {
    return of.sizes[size_index(clip)];
  }
};

/// Seconds of encoding the image or video that a clip of one of plan.sizes begins from, on the
/// slowest rank.
double seconds_of_input(const Plan& plan, std::size_t size);

/// Seconds of decoding a clip of one of plan.sizes, on the slowest rank, and of decoding and
/// writing it, if times are known. Of a size that is not run: as of the first, in proportion to
/// their steps. plan: planned.plan or planned.tail.
double seconds_of_decode(const JobPlan& planned, const Plan& plan, std::size_t size);
double seconds_after_steps(const JobPlan& planned, const Plan& plan, std::size_t size);

/// Seconds of a step of one clip of one of plan.sizes on the slowest rank of a replica, while it is
/// in a batch. plan: as above; of a job whose times are known.
double seconds_of_step(const JobPlan& planned, const Plan& plan, std::size_t size,
                       std::size_t replica);

/// When each batch is predicted to be made, by which replica of planned.plan: in seconds, with
/// decoding and writing in phased mode, if times are known; otherwise in FLOPs of its steps.
TaskSchedule task_schedule(const JobPlan& planned, const std::vector<BatchOutline>& batches);

/// Until the last of them is made, with the replicas of the last batches; in seconds if times are
/// known.
double seconds_of_tasks(const JobPlan& planned, const std::vector<BatchOutline>& batches);

/// The batches of these clips, in the order in which they are made: the longest first if there are
/// several replicas, otherwise as form_batches() gives them.
std::vector<BatchOutline> ordered_batches(const JobPlan& planned,
                                          std::span<const ClipOutline> clips, int max_clips);

/// Makes the clips and the plan; reads the model's configs. inputs: the facts of all files that
/// clips begin from. Errors as Family::open, Family::clips and make_plan; also Error(no_input) if
/// the file that parallel.device-map names is missing. Time and memory are linear in the number of
/// clips.
///
/// With job.train: of a training on these clips, which are without guidance. Steps
/// of train.batch clips take the place of denoising, videos are encoded and none are decoded, and
/// all embeddings are in files; one replica unless job.parallel says how many.
///
/// later: memory for LoRAs that are not there yet.
JobPlan plan_job(const Job& job, const Conditions& conditions, Inputs inputs = {},
                 TrainingToPlan training = {}, LoraMemory later = {});

/// Makes the plan again for a job of which only these clips are still to be made: fewer clips may
/// be made sooner by fewer, larger replicas.
void plan_again(JobPlan& planned, const Job& job, const Conditions& conditions,
                const std::vector<ClipOutline>& clips);

/// Makes the plan for each of these requests in place of the job's and, if it is possible and fits,
/// calls use() with the request while it is planned.plan, without planned.tail. The last one stays.
void for_each_plan(JobPlan& planned, const Job& job, const Conditions& conditions,
                   const std::vector<ParallelRequest>& requests,
                   const std::function<void(const ParallelRequest&)>& use);

/// Error(unavailable) if the plan exceeds a memory limit: names the rank, the bytes needed, the
/// limit, and what would help. It makes further plans to find out what helps.
void require_fit(const Job& job, const JobPlan& planned, const Conditions& conditions);

}  // namespace reelmesh
