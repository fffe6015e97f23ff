#pragma once
// How ranks stand for attention: a value without communicator, as layouts are.
#include "layout/layout.hpp"

namespace reelmesh {

/// Attention of one call over tokens that are spread over a group. The ranks of the group stand in
/// `ring` rows of equally many, row after row. A row attends for its own tokens to all tokens, and
/// the ranks of a row share its heads out, as evenly as integers allow.
struct AttendGeometry {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t channels = 1;  ///< of a head
  int ring = 1;               ///< divides the number of ranks; the others of a row are Ulysses'
};

/// Who attends for what. `segments`: partitions of the tokens of each segment over the same ranks.
class AttendMesh {
 public:
  AttendMesh(const std::vector<Layout>& segments, const AttendGeometry& geometry);

  int ranks() const { return static_cast<int>(tokens_.size()); }
  int ulysses() const { return ranks() / geometry_.ring; }
  const AttendGeometry& geometry() const { return geometry_; }
  int row(int rank) const { return rank / ulysses(); }
  int column(int rank) const { return rank % ulysses(); }
  /// The first of the ulysses() ranks with which this one shares the heads out.
  int first_of_row(int rank) const { return row(rank) * ulysses(); }
  std::int64_t first_head(int rank) const;
  std::int64_t heads(int rank) const;
  std::int64_t tokens(int rank) const { return tokens_.at(static_cast<std::size_t>(rank)); }
  std::int64_t row_tokens(int rank) const;  ///< queries that the rank attends for
  std::int64_t all_tokens() const;
  /// Whether there is anything to attend for, so that keys are needed.
  bool attends(int rank) const { return row_tokens(rank) > 0 && heads(rank) > 0; }

  /// Elements that leave the rank in one call: queries to the ranks of its row by heads and results
  /// back by tokens, keys and values by heads to every rank that attends. With S tokens of D
  /// channels in equal parts on P ranks this is batch times 4·S·D/P·(1 − 1/P) for Ulysses alone and
  /// 2·S·D·(P − 1)/P for the ring alone.
  std::int64_t sent_elements(int rank) const;
  /// Operations of the rank's two products in one call: 4 · queries · keys · channels.
  std::int64_t flops(int rank) const;

 private:
  AttendGeometry geometry_;
  std::vector<std::int64_t> tokens_;
};

}  // namespace reelmesh
