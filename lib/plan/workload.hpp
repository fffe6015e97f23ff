#pragma once
// What a plan knows of a model: the sizes that determine layouts and costs, and functions that
// predict the memory of a rank. Made by the model's family (job/family.hpp).
#include <functional>
#include <vector>

#include "layout/clip_layout.hpp"
#include "plan/device_map.hpp"

namespace reelmesh {

/// Bytes of one stage on one rank.
struct StageMemory {
  std::int64_t weights = 0;
  std::int64_t working = 0;     ///< peak, without the weights
  std::int64_t per_thread = 0;  ///< buffers that each thread keeps from the stage's start on
  std::int64_t total() const;   ///< weights and working, with fragmentation
  bool used() const { return weights + working > 0; }
};

/// Bytes of a stage's weights that need not stay on a rank: those of its linear layers.
struct StreamedWeights {
  std::int64_t bytes = 0;  ///< of all, if they stay
  /// Working memory that they need if they do not stay: gathered from other ranks, or fetched from
  /// the host.
  std::int64_t gather_window = 0, host_window = 0;
};

/// The text encoder: layers that a device map assigns to ranks.
struct TextWorkload {
  std::int64_t layers = 0;
  std::int64_t layer_bytes = 1;
  std::int64_t embedding_bytes = 0;
  StreamedWeights streamed_layer;  ///< of each layer
  /// Memory of consecutive layers on one rank, for the longest text of the job; as if all weights
  /// stayed.
  std::function<StageMemory(const DeviceMap::Stage&)> memory;
};

/// Denoising of clips of one size.
struct DenoiseWorkload {
  AttentionKind attention = AttentionKind::joint;
  Shape latents;         ///< [frame, row, column]
  Shape patch{1, 2, 2};  ///< latents per token along each axis; the last patch may be partial
  std::int64_t dropped_frames = 0;  ///< latent frames at the front that only fill a patch
  std::int64_t latent_channels = 4;
  std::int64_t predicted_channels = 4;
  std::int64_t text_tokens = 0;
  std::int64_t branches = 2;  ///< CFG branches per clip
  std::int64_t layers = 1;  ///< with space_time attention: pairs of spatial and temporal attention
  std::int64_t heads = 1, head_channels = 1;
  std::int64_t mlp_channels = 4;
  std::int64_t mlps = 1;           ///< per layer; with space_time attention each comes with a
                                   ///< cross-attention to the text
  std::int64_t element_bytes = 4;  ///< per element that attention exchanges
  StreamedWeights streamed;        ///< of the transformer
  /// Memory of a rank of the denoising group, as if all weights stayed.
  std::function<StageMemory(const DenoiseLayout&, int rank)> memory;

  std::int64_t channels() const { return heads * head_channels; }
  Shape tokens() const;  ///< [frame, row, column]
};

/// Decoding of clips of one size.
struct DecodeWorkload {
  Shape latents;                   ///< [frame, row, column]
  std::int64_t frames = 1;         ///< of the video
  std::int64_t group_latents = 1;  ///< latent frames that are decoded together
  std::int64_t group_frames = 1;   ///< frames of the video that a group decodes to
  bool single_images = false;  ///< a second autoencoder decodes the frames of a group one by one
  /// Memory of a rank of the decoding group.
  std::function<StageMemory(const DecodeLayout&, int rank)> memory;
};

/// Clips of one size.
struct ClipWorkload {
  DenoiseWorkload denoise;
  DecodeWorkload decode;
  /// Memory of a rank of the decoding group while it encodes the images or videos that clips begin
  /// from; empty if they begin from noise alone. The layout is that of the decoded video, with all
  /// frames in one group.
  std::function<StageMemory(const DecodeLayout&, int rank)> encode;
};

struct Workload {
  TextWorkload text;
  std::vector<ClipWorkload> sizes;  ///< of the clips of the job, at least one
  /// Bytes of the text embeddings and encoded inputs of all clips, and of the batch with the most:
  /// they are kept until the later stages need them.
  std::int64_t embedding_bytes = 0, largest_embedding_bytes = 0;
  std::int64_t clip_bytes = 0;  ///< of the list of clips, on each rank from the start
};

}  // namespace reelmesh
