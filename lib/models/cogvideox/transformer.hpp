#pragma once
// CogVideoX's diffusion transformer (Yang et al. 2024; diffusers' CogVideoXTransformer3DModel), for
// text to video and image to video.
#include <optional>
#include <span>

#include "layout/attend.hpp"
#include "layout/sharded.hpp"
#include "models/cogvideox/positions.hpp"
#include "models/common/trained_model.hpp"
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
  /// All tokens, text before video.
  const TokenColumns& columns() const { return tokens_; }

 private:
  friend class CogVideoXTransformer;
  comm::Group group_;
  Layout grid_, text_;
  std::int64_t batch_;
  Attend attend_;
  TokenColumns tokens_, text_tokens_, video_tokens_;  ///< tokens_: text, then video
  Tensor sincos_table_;   ///< sin-cos table of this rank's video tokens, or empty
  Tensor learned_table_;  ///< learned positions of this rank's text and video tokens, or empty
  RotaryTables rotary_;   ///< of this rank's video tokens, or empty
};

/// Chunks of a block's modulation table for the video. Those for the text follow, in the same
/// order.
enum ModulationChunk { shift_chunk, scale_chunk, gate_chunk, video_chunks };

class CogVideoXTransformer final : public TrainableDenoiser {
 public:
  /// Computes on weights.device(). training: of a model that is trained, all parameters but learned
  /// positions, or LoRAs of the layers of blocks; otherwise null. Errors as LayerMaker::finish().
  /// Collective over placement.group, unless weights are replicated.
  CogVideoXTransformer(const Checkpoint& weights, const CogVideoXConfig& config, DType dtype,
                       const WeightPlacement& placement = {}, ModelTraining* training = nullptr);

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
  std::unique_ptr<const Clip> prepare_training(const DenoiseTask& task) const override;
  Tensor predict_together(const Clip& clip, const TrainingSample& sample) const override;
  Example example(Device host) const override;

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
  struct Block {
    LinearLayer modulation1, modulation2;  ///< shift, scale, gate for video, then for text
    Affine norm1, norm2;
    LinearLayer query, key_value, out;
    ops::HeadNorm query_norm, key_norm;
    LinearLayer up, down;
  };
  /// The modulation tables of a block: of attention, and of its feed-forward layers.
  struct Tables {
    Tensor attention, feed_forward;
  };
  Tensor time_embedding(const Tensor& sinusoid) const;
  Tensor input_patches(std::span<const Tensor> latents, std::span<const Tensor> images) const;
  /// z: tokens, overwritten. → the tokens after the block.
  Tensor run_block(const Block& block, const CogVideoXPlacement& placement, const Tables& tables,
                   Tensor z) const;
  Tensor attention(const Block& block, const CogVideoXPlacement& placement,
                   const Tensor& tokens) const;
  /// The tokens of text and video before the first block; without the text's for Blocks::reuse.
  Tensor embed_tokens(const CogVideoXPlacement& placement, std::span<const Tensor> latents,
                      const Tensor& context, std::span<const Tensor> images, Blocks blocks) const;

  std::optional<Checkpoint> learned_positions_;  ///< where they are read, if there are any
  CogVideoXConfig config_;
  DType dtype_;
  Device device_;
  Numerics numerics_;
  bool capturable_ = true;
  LinearLayer patch_, text_, time1_, time2_, modulation_out_, out_;
  Tensor ofs_sinusoid_;      ///< of the offset, [1, channel] of dtype(), or empty
  LinearLayer ofs1_, ofs2_;  ///< its embedding
  Affine norm_final_, norm_out_;
  std::vector<Block> blocks_;
};

}  // namespace reelmesh
