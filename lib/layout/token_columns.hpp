#pragma once
// Tokens that are sharded over a group ↔ all tokens of a range of channels (or heads) on each rank.
// In this second layout sums over tokens, which gradients of weights and attention need, are local
// and in global order, so that their bits do not depend on the layout of the tokens.
#include <map>
#include <vector>

#include "layout/relayout.hpp"
#include "tensor/tape.hpp"

namespace reelmesh {

class TokenColumns : public TokenRows {
 public:
  /// segments: as of Attend: partitions of the tokens of each segment over the group. unit: ranks
  /// divide channels in multiples of it (the channels of a head), as evenly as integers allow; the
  /// last one may be smaller.
  TokenColumns(const comm::Group& group, const std::vector<Layout>& segments, std::int64_t unit);

  std::int64_t unit() const { return unit_; }
  std::int64_t all_tokens() const { return all_tokens_; }
  std::int64_t own_tokens() const { return own_tokens_; }
  /// The range of the channels that a rank has in the second layout.
  Range columns(std::int64_t channels, int rank) const;
  Range own_columns(std::int64_t channels) const override {
    return columns(channels, group_.rank());
  }

  // x: this rank's tokens [token, channel], segment after segment, each row-major in its box, of
  // any type and on any device. All are collective over the group.
  /// → all tokens in global order, [token, own column].
  Tensor to_columns(const Tensor& x) const override;
  /// The reverse: x [all tokens, own column] → [own token, channel].
  Tensor to_tokens(const Tensor& x, std::int64_t channels) const;
  /// → all tokens in global order with all channels, on every rank.
  Tensor gather(const Tensor& x) const override;
  Tensor whole(const Tensor& own, std::int64_t channels) const override;
  std::int64_t first_rows() const override {
    return segments_.empty() ? 0 : numel(segments_.front().global());
  }
  Tensor numbers(Device device) const override;

 private:
  enum class Way { to_columns, to_tokens, gather };
  const Exchange& exchange(Way way, std::int64_t channels) const;
  std::vector<Tensor> split(const Tensor& x, bool all) const;

  comm::Group group_;
  std::vector<Layout> segments_;
  std::int64_t unit_;
  std::int64_t all_tokens_ = 0, own_tokens_ = 0;
  // Made when first used.
  mutable std::map<std::pair<Way, std::int64_t>, Exchange> exchanges_;
  mutable Tensor numbers_;
};

}  // namespace reelmesh
