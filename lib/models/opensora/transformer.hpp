#pragma once
// Open-Sora's diffusion transformers with alternating spatial and temporal attention: STDiT of
// release 1.0 and STDiT3 of release 1.2 (Zheng et al. 2024).
#include <array>
#include <span>

#include "models/common/trained_model.hpp"
#include "models/opensora/placement.hpp"
#include "ops/norm.hpp"

namespace reelmesh {

/// A clip's prompt as the blocks' cross-attention uses it; the same in every step.
struct STDiTContext {
  /// Keys and values for each block with cross-attention, in block order: [token, branch, 2, head,
  /// channel].
  std::vector<Tensor> keys_values;
};

/// Rows of a block's modulation table.
enum STDiTChunk {
  attention_shift,
  attention_scale,
  attention_gate,
  mlp_shift,
  mlp_scale,
  mlp_gate,
  table_chunks
};

/// The shape [frame, channel, row, column] of latents, enlarged to whole patches.
Shape whole_patches(const Shape& latents, const ops::Patch& patch);
/// x [frame, channel, row, column], cropped or padded with zeros to `rows` and `columns`. Gradient:
/// of x.
Tensor resized_latents(const Tensor& x, std::int64_t rows, std::int64_t columns);

class STDiT final : public TrainableDenoiser {
 public:
  static constexpr std::int64_t branches = STDiTConfig::branches;

  /// Computes on weights.device(). training: of a model that is trained, all parameters but the
  /// null caption, or LoRAs of the layers of blocks; otherwise null. Errors as
  /// LayerMaker::finish(). Collective over placement.group, unless weights are replicated.
  STDiT(const Checkpoint& weights, const STDiTConfig& config, DType dtype,
        const WeightPlacement& placement = {}, ModelTraining* training = nullptr);

  const STDiTConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  const Numerics& numerics() const { return numerics_; }
  /// v3: rotary frequencies of temporal attention, float32 [head channels / 2], on the host.
  const Tensor& frequencies() const { return frequencies_; }
  Device device() const override { return device_; }
  bool capturable() const override { return capturable_; }

  /// text: embeddings of the prompt without padding, [token, text channel] of dtype(), 1 to
  /// max_text_tokens tokens, on the host or on device(). The unconditional branch uses equally many
  /// rows of the learned null caption: the reference applies the prompt's mask to both branches.
  STDiTContext encode_context(const Tensor& text) const;

  /// The predictions for a clip, one per branch: float32 [frame, out channel, row, column].
  using Predictions = std::array<Tensor, branches>;

  Tensor embed(double timestep) const override;
  /// The conditioning's text has one branch, the prompt.
  std::unique_ptr<Prepared> prepare(const DenoiseTask& task,
                                    std::span<const Conditioning> conditioning) const override;
  std::unique_ptr<const Clip> prepare_training(const DenoiseTask& task) const override;
  Tensor predict_together(const Clip& clip, const TrainingSample& sample) const override;
  Example example(Device host) const override;

  /// latents: this rank's box of each of the placement's clips, float32 [frame, channel, row,
  /// column]. contexts: of each clip. sinusoid: from embed(). All on device(). → predictions for
  /// this rank's box of each clip. A clip's bits do not depend on the other clips of the batch.
  /// residual: unless the blocks are only computed, [clip · token, branch, channel] of dtype(),
  /// written or read. Collective over the placement's group.
  std::vector<Predictions> operator()(const STDiTPlacement& placement,
                                      std::span<const Tensor> latents,
                                      std::span<const STDiTContext> contexts,
                                      const Tensor& sinusoid, Blocks blocks = Blocks::compute,
                                      Tensor residual = {}) const;
  /// The same with embed(timestep).
  std::vector<Predictions> operator()(const STDiTPlacement& placement,
                                      std::span<const Tensor> latents,
                                      std::span<const STDiTContext> contexts,
                                      double timestep) const {
    return (*this)(placement, latents, contexts, embed(timestep));
  }

  /// As Denoiser::Prepared::change_together. Collective over the placement's group.
  double change(const STDiTPlacement& placement, const StepInput& now,
                const StepInput& before) const;

 private:
  static constexpr float norm_eps = 1e-6F;  ///< of all norms; not in config.json

  struct Attention {
    LinearLayer query_key_value;  ///< pieces: queries; keys and values
    LinearLayer out;
    ops::HeadNorm query_norm, key_norm;  ///< v3
  };
  struct TextAttention {
    LinearLayer query, key_value, out;
  };
  struct Block {
    Tensor table;  ///< [6, channels]: shift, scale, gate of attention, then of the MLP
    Attention attention;
    TextAttention text;
    LinearLayer up, down;
  };
  /// A spatial and a temporal attention. In v1 both are in one block, and of `temporal` only the
  /// attention is used; in v3 each has its own block.
  struct Pair {
    Block spatial, temporal;
  };

  Block make_block(LayerMaker& make, const std::string& name) const;
  Attention make_attention(LayerMaker& make, const std::string& name) const;
  void make_text_and_mlp(LayerMaker& make, const std::string& name, Block& block) const;
  // captions: [token, branch, text channel].
  STDiTContext encode_captions(const Tensor& captions) const;
  Tensor time_embedding(const Tensor& fps, const Tensor& sinusoid) const;
  Tensor block_time(const Tensor& time) const;
  Tensor block_table(const Block& block, const Tensor& time) const;
  Tensor output_table(const Tensor& time) const;
  Tensor embed_tokens(const STDiTPlacement& placement, std::span<const Tensor> latents,
                      std::int64_t copies) const;
  Tensor first_input(const STDiTPlacement& placement, const StepInput& step) const;
  Tensor modulated(const Tensor& x, const Tensor& table, int shift, int scale) const;
  Tensor heads_of(const Tensor& x) const;
  Tensor within_frames(const Attention& layer, const STDiTPlacement& placement,
                       const Tensor& x) const;
  Tensor along_time(const Attention& layer, const STDiTPlacement& placement, const Tensor& x) const;
  Tensor with_times(const STDiTPlacement& placement, const Tensor& x) const;
  void attend_to_text(const Block& block, const STDiTPlacement& placement,
                      std::span<const STDiTContext> contexts, std::size_t keys_values,
                      Tensor& x) const;
  Tensor hidden_features(const Block& block, const STDiTPlacement& placement, const Tensor& table,
                         const Tensor& x) const;
  void add_features(const Block& block, const STDiTPlacement& placement, const Tensor& table,
                    const Tensor& hidden, Tensor& x) const;
  Tensor run_pair(std::size_t index, const STDiTPlacement& placement,
                  std::span<const STDiTContext> contexts, const Tensor& time, Tensor in) const;
  Tensor features(const STDiTPlacement& placement, std::span<const Tensor> latents,
                  std::span<const STDiTContext> contexts, const Tensor& time, Blocks blocks,
                  Tensor& residual) const;
  Tensor latents_of(const Tensor& features, std::int64_t branch, const Shape& box) const;

  STDiTConfig config_;
  DType dtype_;
  Device device_;
  Numerics numerics_;
  bool capturable_ = true;
  float scale_;          ///< of q·k before the softmax
  Tensor ones_, zeros_;  ///< float32 [channels]: layer norms are not affine
  LinearLayer patch_, time1_, time2_, time_block_, fps1_, fps2_, caption1_, caption2_, out_;
  Tensor null_caption_;  ///< [token, text channel]
  Tensor frequencies_;
  Tensor out_table_;  ///< [2, channels]: shift, scale
  std::vector<Pair> pairs_;
};

}  // namespace reelmesh
