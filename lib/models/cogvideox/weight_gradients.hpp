#pragma once
// Gradients of all parameters of CogVideoX's transformer, from what its backward pass knows of
// their layers. Sums over tokens are added on the ranks that have columns of a matrix
// (TokenColumns), over all tokens in global order, so that their bits do not depend on the layout.
#include <optional>

#include "layout/token_columns.hpp"
#include "models/cogvideox/trained_weights.hpp"
#include "models/common/layers.hpp"

namespace reelmesh {

/// x as rows of its last axis, which may have no elements.
Tensor as_rows(const Tensor& x);
/// Columns of [row, column]; x itself if these are all.
Tensor column_range(const Tensor& x, const TokenColumns::Range& range);

/// Of one sample. x: what a layer takes; d: the gradient of what it gives; modules have the names
/// of checkpoints. Members whose names end with _together are collective over the group.
class WeightGradients {
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

  /// Of a layer whose outputs ranks divide. x: all tokens, all inputs; d: all tokens, own outputs.
  void by_outputs(const std::string& module, const Tensor& x, const Tensor& d);
  /// Of a layer whose inputs they divide. x: all tokens, own inputs; d: all tokens, all outputs.
  void by_inputs(const std::string& module, const Tensor& x, const Tensor& d);

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
  /// At the end: of the time embedding linear_2(silu(linear_1(sinusoid))), whose result passes
  /// through silu before the modulation layers. hidden, result: of the two layers, before silu;
  /// activated: silu(hidden).
  void finish_time(const Tensor& sinusoid, const Tensor& hidden, const Tensor& activated,
                   const Tensor& result, const ops::Linear& backward2);

 private:
  /// Gradients of a table's chunks: rows of own columns.
  Tensor& chunk_sums(Table table) { return table == Table::last ? of_last_ : of_block_; }
  std::int64_t chunk_row(Table table, std::int64_t chunk) const;
  Tensor whole_together(const Tensor& own) const;
  void take(const std::string& name, const Tensor& gradient) const {
    (*take_)(weights_.index(name), gradient);
  }
  /// Takes this rank's part of a vector [1, column].
  void take_own(const std::string& name, const Tensor& whole) const;
  void modulation(const std::string& module, const Tensor& time, const Tensor& table,
                  const ops::Linear& backward);

  const TrainedWeights& weights_;
  comm::Group group_;
  const TokenColumns& all_;
  TokenColumns text_, video_;
  Device device_, host_;
  std::int64_t channels_, head_channels_, all_texts_;
  Tensor ones_, zeros_;  ///< [channel], on the device
  const TakeGradient* take_ = nullptr;
  /// [16, own channel]: two tables of 6 chunks; weights and biases of head norms
  Tensor of_block_;
  Tensor of_last_;  ///< [2, own channel]
  Tensor of_time_;  ///< [time channel]: of what the modulation layers take
};

}  // namespace reelmesh
