#pragma once
// The diffusion transformer of Wan 2.1 and 2.2 (Wan Team 2025; diffusers' WanTransformer3DModel),
// of two experts one. Video tokens attend to one another, to the text, and in models with an
// image encoder to its rows; of both each rank has all rows.
#include <span>

#include "layout/attend.hpp"
#include "layout/sharded.hpp"
#include "layout/whole_rows.hpp"
#include "models/common/trained_model.hpp"
#include "models/wan/positions.hpp"
#include "ops/norm.hpp"

namespace reelmesh {

class WanTransformer;

/// How a batch of clips of one size is distributed over a group. Made once and used in every call
/// of the transformer.
class WanPlacement {
 public:
  /// grid: video tokens [frame, row, column], a partition over the group. batch: guidance branches
  /// that the group computes, of all clips. ring: size of the ring in attention (layout/mesh.hpp).
  /// image_rows: of the image encoder, that the tokens attend to; 0: none.
  /// Collective over the group if the transformer is on a CUDA device, as Attend's constructor.
  WanPlacement(const WanTransformer& transformer, const comm::Group& group, const Layout& grid,
               std::int64_t batch, int ring = 1, std::int64_t image_rows = 0);

  const comm::Group& group() const { return group_; }
  std::int64_t batch() const { return batch_; }
  /// This rank's.
  std::int64_t tokens() const { return own_box(grid_, group_).numel(); }
  /// Of one clip on all ranks. Algorithms of matrix products are chosen for these.
  std::int64_t all_tokens() const { return numel(grid_.global()); }
  /// This rank's tokens of frame 0, its first ones; later chunks of a table: those that they use.
  ops::FirstTokens frame_0(int chunks_later) const;
  /// The video tokens.
  const TokenColumns& columns() const { return columns_; }

 private:
  friend class WanTransformer;
  comm::Group group_;
  Layout grid_;
  std::int64_t batch_;
  Attend attend_;
  TokenColumns columns_;
  WanRotaryTables rotary_;  ///< of this rank's tokens
};

/// Keys and values of one block, [row, batch, 2, head, channel]: of the text, and of the rows of
/// the image encoder, or empty.
struct WanBlockContext {
  Tensor text, image;
};
/// Of each block.
using WanContext = std::vector<WanBlockContext>;

class WanTransformer final : public TrainableDenoiser {
 public:
  /// Computes on weights.device(). In float32 whatever `dtype` is: the embedding of time until it
  /// is rounded once, tables of shifts, scales and gates, norms, and rotations. training: of a
  /// model that is trained, all parameters, or LoRAs of the layers of blocks; otherwise null.
  /// Errors as LayerMaker::finish(). Collective over placement.group, unless weights are
  /// replicated.
  WanTransformer(const Checkpoint& weights, const WanConfig& config, DType dtype,
                 const WeightPlacement& placement = {}, ModelTraining* training = nullptr);

  const WanConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  Device device() const override { return device_; }
  bool capturable() const override { return capturable_; }
  const Numerics& numerics() const { return numerics_; }
  Tensor embed(double timestep) const override;
  std::unique_ptr<Prepared> prepare(const DenoiseTask& task,
                                    std::span<const Conditioning> conditioning) const override;
  std::unique_ptr<const Clip> prepare_training(const DenoiseTask& task) const override;
  Tensor predict_together(const Clip& clip, const TrainingSample& sample) const override;
  Example example(Device host) const override;

  /// text: embeddings [row, batch, text channel] of dtype(), at most WanConfig::text_tokens rows;
  /// those that are missing are zero. vision: rows of the image encoder [row, batch,
  /// vision_channels] of dtype(), for models that take them. All on device(). The same on all
  /// ranks.
  WanContext encode_context(const Tensor& text, const Tensor& vision = {}) const;

  /// latents: this rank's box of each clip, float32 [frame, channel, row, column]. images: for
  /// image to video each clip's mask and condition, likewise; otherwise none. context: of
  /// the placement's batch: all branches of the first clip, then those of the next. sinusoid: from
  /// embed(). All on device(). → one prediction per batch item, float32, shaped as the latents: the
  /// velocity, noise − clip. A clip's bits do not depend on the other clips of the batch. residual:
  /// unless the blocks are only computed, [token, batch, channel] of dtype(), written or read.
  /// sinusoid_0: of the timestep of the tokens of frame 0, if they have their own. Collective over
  /// the placement's group.
  std::vector<Tensor> operator()(const WanPlacement& placement, std::span<const Tensor> latents,
                                 const WanContext& context, const Tensor& sinusoid,
                                 std::span<const Tensor> images = {},
                                 Blocks blocks = Blocks::compute, Tensor residual = {},
                                 const Tensor& sinusoid_0 = {}) const;

 private:
  struct Attention {
    LinearLayer query, key_value, out;
    Tensor query_norm, key_norm;  ///< float32 [channel]
  };
  struct Block {
    Tensor table;  ///< float32 [6, channel], by WanChunk
    Attention self, text;
    LinearLayer image_key_value;  ///< of the rows of the image encoder
    Tensor image_key_norm;        ///< float32 [channel]
    Affine text_norm;
    LinearLayer up, down;
  };
  Tensor time_embedding(const Tensor& sinusoid) const;
  Tensor block_times(const Tensor& time) const;
  Tensor out_table(const Tensor& time) const;
  Tensor modulated(const Tensor& x, const ops::Modulation& modulation) const;
  Tensor normed_heads(const LinearLayer& product, const Tensor& x, const Tensor& norm,
                      const WanRotaryTables& rotary, std::int64_t all_rows) const;
  Tensor self_attention(const Block& block, const WanPlacement& placement, const Tensor& x) const;
  Tensor context_attention(const Block& block, const WanPlacement& placement,
                           const WanBlockContext& context, const Tensor& x) const;
  Tensor embed_vision(const Tensor& vision) const;
  Tensor patches(std::span<const Tensor> latents, std::span<const Tensor> images) const;
  /// x: tokens, overwritten. times: of block_times(), then those of frame 0 if it has its
  /// own timestep. → the tokens after the block.
  Tensor run_block(const Block& block, const WanPlacement& placement,
                   const WanBlockContext& context, const Tensor& times, Tensor x) const;

  WanConfig config_;
  DType dtype_;
  Device device_;
  Numerics numerics_;
  bool capturable_ = true;
  float eps_, scale_;    ///< of norms; of q·k before the softmax
  Tensor ones_, zeros_;  ///< float32 [channel]: most layer norms are not affine
  LinearLayer patch_, text1_, text2_, time_projection_, out_;
  LinearLayer time1_, time2_;  ///< float32
  // Of the rows of the image encoder.
  Tensor vision_positions_;  ///< [row, vision channel], or empty
  Affine vision_norm1_, vision_norm2_;
  LinearLayer vision1_, vision2_;
  Tensor out_table_;  ///< float32 [2, channel]: shift, scale
  std::vector<Block> blocks_;
};

}  // namespace reelmesh
