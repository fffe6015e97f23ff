#pragma once
// CogVideoX's diffusion transformer (Yang et al. 2024; diffusers' CogVideoXTransformer3DModel), for
// text to video and image to video.
#include <optional>
#include <span>

#include "layout/attend.hpp"
#include "layout/sharded.hpp"
#include "layout/weight_stream.hpp"
#include "models/cogvideox/positions.hpp"
#include "models/common/adapter.hpp"
#include "models/common/denoiser.hpp"
#include "models/common/layers.hpp"
#include "ops/norm.hpp"

namespace reelmesh {

class CogVideoXTransformer;

/// How a clip, or a batch of clips of one size, is distributed over a group. Made once and used in
/// every call of the transformer.
class CogVideoXPlacement {
 public:
  /// grid: video tokens [frame, row, column]; text: text tokens [token]; both partitions over the
  /// group. batch: guidance branches that the group computes, of all clips. ring: size of the ring
  /// in attention (layout/mesh.hpp). Reads learned positions from the checkpoint. Collective over
  /// the group if the transformer is on a CUDA device, as Attend's constructor.
  CogVideoXPlacement(const CogVideoXTransformer& transformer, const comm::Group& group,
                     const Layout& grid, const Layout& text, std::int64_t batch, int ring = 1);

  const comm::Group& group() const { return group_; }
  const Layout& text() const { return text_; }
  std::int64_t batch() const { return batch_; }
  /// Of one clip on all ranks. Algorithms of matrix products are chosen for these, not for the rows
  /// of this rank or of the batch.
  std::int64_t all_text_tokens() const { return numel(text_.global()); }
  std::int64_t all_video_tokens() const { return numel(grid_.global()); }
  std::int64_t all_tokens() const { return all_text_tokens() + all_video_tokens(); }

 private:
  friend class CogVideoXTransformer;
  comm::Group group_;
  Layout grid_, text_;
  std::int64_t batch_;
  Attend attend_;
  Tensor sincos_table_;   ///< sin-cos table of this rank's video tokens, or empty
  Tensor learned_table_;  ///< learned positions of this rank's text and video tokens, or empty
  RotaryTables rotary_;   ///< of this rank's video tokens, or empty
};

/// Chunks of a block's modulation table for the video. Those for the text follow, in the same
/// order.
enum ModulationChunk { shift_chunk, scale_chunk, gate_chunk, video_chunks };

/// The LoRAs of a block's layers while they are trained; null: none.
struct BlockAdapters {
  const Adapter *query = nullptr, *key_value = nullptr, *out = nullptr;
  const Adapter *up = nullptr, *down = nullptr;
};

class CogVideoXTransformer final : public Denoiser {
 public:
  /// Computes on weights.device(). Collective over placement.group, unless weights are replicated.
  /// adapters: of each block of a model whose LoRA is trained; they must outlive it. The layers
  /// that the backward pass needs are then made, too, and with trains_weights those for gradients
  /// of all parameters.
  CogVideoXTransformer(const Checkpoint& weights, const CogVideoXConfig& config, DType dtype,
                       const WeightPlacement& placement = {},
                       std::span<const BlockAdapters> adapters = {}, bool trains_weights = false);

  const CogVideoXConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  Device device() const override { return device_; }
  bool capturable() const override { return capturable_; }
  const Numerics& numerics() const { return numerics_; }
  Tensor embed(double timestep) const override;
  /// Patches [token, 1, feature] of dtype(). latents: of a clip, or of the image that it begins
  /// from; float32 [frame, channel, row, column] on device().
  Tensor patches(const Tensor& latents) const;
  /// Learned positions of tokens of the checkpoint's own size: see learned_positions().
  Tensor own_learned_positions(const Box& text, const Box& video) const;
  std::unique_ptr<Prepared> prepare(const DenoiseTask& task,
                                    std::span<const Conditioning> conditioning) const override;

  /// latents: this rank's box of each clip, float32 [frame, channel, row, column]. context: text
  /// embeddings of this rank's text tokens, [token, batch, text channel] of dtype(); the batch has
  /// all branches of the first clip, then those of the next. sinusoid: from embed(). images: for
  /// image to video, the patches() of the latents of each clip's image; otherwise none. All on
  /// device(). → one prediction per batch item, float32, shaped as the latents. A clip's bits do
  /// not depend on the other clips of the batch. residual: unless the blocks are only computed,
  /// [video token, batch, channel] of dtype(), written or read; that of the text is not kept, since
  /// the last layers use the video's tokens only. Collective over the placement's group.
  std::vector<Tensor> operator()(const CogVideoXPlacement& placement,
                                 std::span<const Tensor> latents, const Tensor& context,
                                 const Tensor& sinusoid, std::span<const Tensor> images = {},
                                 Blocks blocks = Blocks::compute, Tensor residual = {}) const;
  /// The same with embed(timestep).
  std::vector<Tensor> operator()(const CogVideoXPlacement& placement,
                                 std::span<const Tensor> latents, const Tensor& context,
                                 std::int64_t timestep, std::span<const Tensor> images = {}) const {
    return (*this)(placement, latents, context, embed(static_cast<double>(timestep)), images);
  }

 private:
  friend class CogVideoXGradients;
  /// Layers of the backward pass. Those that compute a block again, in their order, then products
  /// with transposed weights, which give gradients of inputs.
  struct BlockBackward {
    ops::Linear query_again, key_value_again, out_again, up_again;
    ops::Linear down_again;  ///< only if all parameters are trained, as are the modulations
    ops::Linear down, up, out, key_value, query;  ///< of a LoRA the last two not of the first block
    ops::Linear modulation2, modulation1;
  };
  struct Block {
    ops::Linear modulation1, modulation2;  ///< shift, scale, gate for video, then for text
    Affine norm1, norm2;
    ops::Linear query, key_value, out;
    ops::HeadNorm query_norm, key_norm;
    ops::Linear up, down;
    BlockAdapters adapters;
    BlockBackward backward;  ///< only of a model that is trained
  };
  /// The embedding of the offset before its layers, [1, channel] of dtype().
  Tensor ofs_sinusoid() const;
  Tensor time_embedding(const Tensor& sinusoid) const;
  Tensor input_patches(std::span<const Tensor> latents, std::span<const Tensor> images) const;
  /// The input of a block's attention: its first modulation table, and the tokens z normalised and
  /// modulated with it.
  struct Modulated {
    Tensor table, tokens;
  };
  /// Updates z; → the input of the next block, which is made in the same pass over z, or nothing if
  /// there is none.
  Modulated run_block(const Block& block, const Block* next, const CogVideoXPlacement& placement,
                      Tensor& z, const Modulated& input, const Tensor& time,
                      Tensor* second_table = nullptr) const;
  /// The tokens of text and video before the first block; without the text's for Blocks::reuse.
  Tensor embed_tokens(const CogVideoXPlacement& placement, std::span<const Tensor> latents,
                      const Tensor& context, std::span<const Tensor> images, Blocks blocks) const;
  /// gelu(up(x)), not rounded in between unless the layer is trained.
  Tensor hidden_features(const Block& block, const CogVideoXPlacement& placement,
                         const Tensor& x) const;

  std::optional<Checkpoint> learned_positions_;  ///< where they are read, if there are any
  CogVideoXConfig config_;
  DType dtype_;
  Device device_;
  Numerics numerics_;
  bool capturable_ = true;
  ops::Linear patch_, text_, time1_, time2_, modulation_out_, out_;
  ops::Linear out_backward_;                              ///< only of a model that is trained
  ops::Linear modulation_out_backward_, time2_backward_;  ///< only if all parameters are
  Tensor ofs_;  ///< embedding of the offset, [1, time channels], or empty
  ops::Linear ofs1_, ofs2_, ofs2_backward_;  ///< its layers; only if all parameters are trained
  Affine norm_final_, norm_out_;
  std::vector<Block> blocks_;
};

}  // namespace reelmesh
