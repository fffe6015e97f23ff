#pragma once
// Gradients of all parameters of CogVideoX's transformer: those of its norms and modulations.
#include <optional>

#include "models/cogvideox/config.hpp"
#include "models/common/layer_gradients.hpp"
#include "models/common/layers.hpp"

namespace reelmesh {

class WeightGradients : public LayerGradients {
 public:
  /// text, video: their tokens, as partitions over the group; all: both. weights and all must
  /// outlive the object.
  WeightGradients(const TrainedWeights& weights, const CogVideoXConfig& config,
                  const comm::Group& group, const TokenColumns& all, const Layout& text,
                  const Layout& video, Device device);

  /// Begins a sample, whose gradients go to `take`, which must outlive its last call.
  void begin(const TakeGradient& take);

  const TokenColumns& text() const { return text_; }
  const TokenColumns& video() const { return video_; }

  /// The two modulations of a block, or that of the last norm.
  enum class Table { first, second, last };
  /// Of a norm and of shift and scale after it, unless it has none. x: the norm's input; x, d: own
  /// tokens. modulation: with its table of the forward pass.
  void norm_together(const std::string& module, const Affine& norm, float eps, const Tensor& x,
                     const Tensor& d, std::optional<Table> table, const Tensor& modulation);
  /// Of a gate. change: what is multiplied by it; d: the gradient of the sum; own tokens.
  void gate_together(Table table, const Tensor& change, const Tensor& d);
  /// Of the norm of a block's query heads, or of its keys'. x: the norm's input, d: the gradient of
  /// its result, [token, 1, 1, head, channel]: all tokens, own heads.
  void head_norm(bool of_query, float norm_eps, const Tensor& x, const Tensor& d);

  /// At the end of a block: what its modulation layers and head norms take from the sums of all
  /// ranks. block: its name, "transformer_blocks.0."; backward1, backward2: the modulation layers'
  /// backward products; time: what they take.
  void finish_block_together(const std::string& block, const Tensor& time,
                             const ops::Linear& backward1, const ops::Linear& backward2);
  void finish_last_together(const Tensor& time, const ops::Linear& backward);
  /// At the end: the gradient of the time embedding, [1, time channel], float32 on the host. time:
  /// the embedding, which passes through silu before the modulation layers.
  Tensor of_time(const Tensor& time) const;
  /// Of an embedding linear_2(silu(linear_1(sinusoid))). hidden: of the first layer, before silu;
  /// activated: silu(hidden); d: of the result, [1, time channel], float32 on the host.
  void embedding(const std::string& module, const Tensor& sinusoid, const Tensor& hidden,
                 const Tensor& activated, const Tensor& d, const ops::Linear& backward2);

 private:
  /// Gradients of a table's chunks: rows of own columns.
  Tensor& chunk_sums(Table table) { return table == Table::last ? of_last_ : of_block_; }
  std::int64_t chunk_row(Table table, std::int64_t chunk) const;
  void modulation(const std::string& module, const Tensor& time, const Tensor& table,
                  const ops::Linear& backward);

  TokenColumns text_, video_;
  std::int64_t channels_, head_channels_, all_texts_;
  Tensor ones_, zeros_;  ///< [channel], on the device
  /// [16, own channel]: two tables of 6 chunks; weights and biases of head norms
  Tensor of_block_;
  Tensor of_last_;  ///< [2, own channel]
  Tensor of_time_;  ///< [time channel]: of what the modulation layers take
};

}  // namespace reelmesh
