#pragma once
// What a plan knows of a model: the sizes that determine layouts, and what a rank takes.
#include <memory>
#include <optional>
#include <vector>

#include "layout/clip_layout.hpp"
#include "layout/residence.hpp"
#include "plan/device_map.hpp"
#include "plan/roles.hpp"
#include "tensor/ledger.hpp"
#include "tensor/time_model.hpp"

namespace reelmesh {

/// Bytes of one stage on one rank.
struct StageMemory {
  std::int64_t weights = 0;
  std::int64_t working = 0;     ///< peak beside the weights, with holes between blocks
  std::int64_t per_thread = 0;  ///< buffers that each thread keeps from the stage's start on
  /// Of a rank with a GPU, whose memory the others are: peak on the host, without weights that
  /// ranks share there.
  std::int64_t host = 0;
  std::int64_t peers = 0;  ///< ranks with which it exchanges tensors on devices
  std::int64_t total() const { return weights + working; }
  bool used() const { return weights + working > 0; }
};

/// What one stage takes on one rank.
struct StageCost {
  StageMemory memory;
  Elapsed time;  ///< of one text or clip; 0 if the machine's times are not known

  StageCost() = default;
  StageCost(const StageMemory& of_rank, const Elapsed& elapsed = {})
      : memory(of_rank), time(elapsed) {}
};

/// Bytes of a stage's weights that need not stay on a rank: those of its linear layers.
struct StreamedWeights {
  std::int64_t bytes = 0;  ///< of all, if they stay
  /// Of all as they are kept if ranks divide them, or hosts keep them: less than `bytes` where a
  /// checkpoint has them in 8 bits.
  std::int64_t sharded_bytes = 0, host_bytes = 0;
  /// Working memory that they need if they do not stay: gathered from other ranks, or fetched from
  /// the host.
  std::int64_t gather_window = 0, host_window = 0;
  /// Bytes that a step fetches from the host if none stay: more than all where layers are computed
  /// twice.
  std::int64_t step = 0;

  std::int64_t kept_bytes(Residence residence) const {
    switch (residence) {
      case Residence::replicated:
        return bytes;
      case Residence::sharded:
        return sharded_bytes;
      case Residence::host:
        return host_bytes;
    }
    return bytes;
  }
};

/// The text encoder: layers that a device map assigns to ranks.
struct TextWorkload {
  std::int64_t layers = 0;
  std::int64_t layer_bytes = 1;
  StreamedWeights streamed_layer;  ///< of each layer
};

/// Assumed cost of a sent byte in FLOPs; machines range from 20 (cores that share memory) to 10000
/// (GPUs on a network).
constexpr double flops_per_byte = 1000;

/// What one rank computes and sends in a step of a batch of clips.
struct StepCost {
  double flops = 0;             ///< as trace::Recorder::flops
  std::int64_t sent_bytes = 0;  ///< to other ranks
  Elapsed time;                 ///< as if all weights stayed; 0 if not known
  /// The same of weights that the rank keeps for all: sent while others are computed with.
  std::int64_t sent_weights = 0;

  /// In FLOPs, on a rank of this relative speed, with weights that arrive while it computes.
  double total(double speed, std::int64_t fetched_bytes) const;
};

/// One of the replicas of a job.
struct Replica {
  int index = 0, count = 1;
  /// How many of these clips it computes, if they go to the replicas in turn.
  std::int64_t share_of(std::int64_t clips) const { return (clips - index + count - 1) / count; }
};

/// What denoising, or training, takes on one rank.
struct DenoiseCost {
  StageMemory memory;  ///< as if all weights stayed
  StepCost step;
  /// `memory` if of two experts only the one whose steps are computed has its weights there; unused
  /// without experts.
  StageMemory in_turn = {};
};

/// The FLOPs of a step on one rank that does everything, and its seconds, 0 if not known.
struct WholeStep {
  double attention = 0, others = 0;
  double attention_seconds = 0, other_seconds = 0;
  bool timed() const { return attention_seconds + other_seconds > 0; }
};

/// The group of ranks that a layout is wanted for.
struct LayoutRequest {
  MeshRequest mesh;
  Shard shard = Shard::automatic;
  int ranks = 1;        ///< a multiple of mesh.product()
  RankWeights weights;  ///< relative speeds of the ranks; empty: equal
};

/// What a job takes on a rank: counted by dry runs of the model (forecast/dry_runs.hpp). Stages are
/// counted as if all weights stayed on the rank.
class Costs {
 public:
  virtual ~Costs() = default;
  /// Of consecutive layers of the text encoder, for the longest text of the job.
  virtual StageCost text(const DeviceMap::Stage& layers) = 0;
  // Of clips of Workload::sizes[size].
  /// A step of a batch, on a rank of the denoising group. Replicas only exchange something in a
  /// training.
  virtual DenoiseCost denoise(std::size_t size, const DenoiseLayout& layout, int rank,
                              const Replica& replica) = 0;
  virtual WholeStep whole_step(std::size_t size) = 0;
  /// Of a rank of the decoding group.
  virtual StageCost decode(std::size_t size, const DecodeLayout& layout, int rank) = 0;
  /// Of a rank of the decoding group that encodes the images or videos that clips begin from, if
  /// ClipWorkload::encodes. The layout is that of the decoded video, with all frames in one group.
  virtual StageCost encode(std::size_t size, const DecodeLayout& layout, int rank) = 0;
  /// The convolutions on GPUs of all of these so far; each of them is the same in every layout.
  virtual std::vector<ConvolutionShape> convolutions() const { return {}; }
  /// Seconds of messages of a rank with others of its group of so many ranks, one after the other;
  /// only if whole_step().timed().
  virtual double message_seconds(int ranks, std::int64_t messages, std::int64_t bytes) = 0;
  /// Bytes of its weights that a rank of a denoising group sends in a step, of a training for a
  /// clip, if they are sharded. shares: of the ranks of the group; empty: equal.
  virtual std::int64_t sent_weights(const RankWeights& shares, int rank, int ranks) = 0;
};

/// Which layouts a model can do (plan/denoise.hpp).
enum class LayoutKind {
  mesh,             ///< mesh_layouts(): text and video tokens attend to one another
  mesh_whole_text,  ///< the same of video tokens alone; each rank has the whole text
  frames,           ///< frame_layouts(): attention within frames and along time
};

/// Denoising of batches of clips of one size.
struct DenoiseWorkload {
  Shape latents;         ///< [frame, row, column]
  Shape patch{1, 2, 2};  ///< latents per token along each axis; the last patch may be partial
  std::int64_t dropped_frames = 0;  ///< latent frames at the front that only fill a patch
  std::int64_t predicted_channels = 4;
  std::int64_t text_tokens = 0;
  std::int64_t branches = 2;  ///< CFG branches per clip
  std::int64_t clips = 1;     ///< of a batch
  std::int64_t layers = 1;
  std::int64_t heads = 1, head_channels = 1;
  std::int64_t element_bytes = 4;  ///< per element that attention exchanges
  StreamedWeights streamed;        ///< of the transformer
  LayoutKind layouts = LayoutKind::mesh;
  std::shared_ptr<Costs> costs;  ///< those of the Workload
  std::size_t size = 0;          ///< index in Workload::sizes

  Shape tokens() const;  ///< [frame, row, column]
};

/// Decoding of clips of one size.
struct DecodeWorkload {
  Shape latents;                   ///< [frame, row, column]
  std::int64_t frames = 1;         ///< of the video
  std::int64_t group_latents = 1;  ///< latent frames that are decoded together
  std::int64_t group_frames = 1;   ///< frames of the video that a group decodes to
  bool single_images = false;  ///< a second autoencoder decodes the frames of a group one by one
};

/// Clips of one size.
struct ClipWorkload {
  DenoiseWorkload denoise;
  DecodeWorkload decode;
  bool encodes = false;  ///< whether clips begin from images or videos, or those of a training
};

class FoundLayouts;

struct Workload {
  std::shared_ptr<Costs> costs;
  std::shared_ptr<FoundLayouts> found;  ///< so that plans of the same job search once; may be null
  TextWorkload text;
  std::vector<ClipWorkload> sizes;  ///< of the clips of the job, at least one
  /// Bytes of the text embeddings and encoded inputs of all clips, and of the batch with the most:
  /// they are kept until the later stages need them.
  std::int64_t embedding_bytes = 0, largest_embedding_bytes = 0;
  std::int64_t clip_bytes = 0;  ///< of the list of clips, on each rank from the start
  /// Of a training: clips of a step, which the replicas compute together. 0: clips are made, and
  /// each replica has its own steps.
  std::int64_t trained_clips = 0;
};

}  // namespace reelmesh
