#pragma once
// How the ranks of a group divide attention: values without communicator, like layouts.
#include <initializer_list>

#include "layout/layout.hpp"

namespace reelmesh {

/// Process mesh of a denoising group: CFG branches × ring × Ulysses. The last axis varies fastest,
/// so that the ranks that exchange most are neighbours.
struct Mesh {
  int cfg = 1, ring = 1, ulysses = 1;
  int branch_ranks() const { return ring * ulysses; }  ///< ranks that compute the same branches
  int ranks() const { return cfg * branch_ranks(); }
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

std::string to_string(const Mesh& mesh);  ///< "cfg 2 x ring 1 x ulysses 4"

/// One attention call over tokens that are sharded over a group. The group is a mesh of `ring` rows
/// (the slow axis) and ranks / ring columns. A row computes attention of its own tokens (queries)
/// to all tokens (keys); the ranks of a row divide the heads as evenly as integers allow.
struct AttentionGeometry {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t channels = 1;  ///< per head
  int ring = 1;               ///< divides the number of ranks
};

/// What each rank computes and sends. The constructor takes time proportional to the number of
/// ranks; all other members take constant time.
class AttentionMesh {
 public:
  /// segments: partitions of the tokens of each segment over the same ranks.
  AttentionMesh(const std::vector<Layout>& segments, const AttentionGeometry& geometry);

  int ranks() const { return static_cast<int>(tokens_.size()); }
  int ring() const { return geometry_.ring; }
  int ulysses() const { return ranks() / geometry_.ring; }
  const AttentionGeometry& geometry() const { return geometry_; }
  int row(int rank) const { return rank / ulysses(); }
  int column(int rank) const { return rank % ulysses(); }
  /// The first rank of this rank's row, i.e. of the ulysses() ranks that divide the heads.
  int first_of_row(int rank) const { return row(rank) * ulysses(); }
  std::int64_t first_head(int rank) const;
  std::int64_t heads(int rank) const;
  std::int64_t tokens(int rank) const { return tokens_.at(static_cast<std::size_t>(rank)); }
  std::int64_t row_tokens(int rank) const;  ///< queries that the rank computes attention for
  std::int64_t all_tokens() const { return all_tokens_; }
  /// Whether the rank computes any attention, and so needs keys.
  bool attends(int rank) const { return row_tokens(rank) > 0 && heads(rank) > 0; }

  /// Elements that the rank sends in one call: queries, keys and values for other heads and results
  /// of other tokens to the ranks of its row, and the keys and values of its row for its heads to
  /// one rank of every other row that has tokens. With S tokens of D channels in equal parts on P
  /// ranks this is batch times 4·S·D/P·(1 − 1/P) for Ulysses alone, 2·S·D·(P − 1)/P for the ring
  /// alone.
  std::int64_t sent_elements(int rank) const;

 private:
  AttentionGeometry geometry_;
  std::vector<std::int64_t> tokens_;      ///< per rank
  std::vector<std::int64_t> row_tokens_;  ///< per row
  std::int64_t all_tokens_ = 0;
  std::int64_t rows_with_tokens_ = 0;
};

/// What distinguishes a rank of one branch of the mesh from others in attention over these segments
/// of tokens: its tokens of each segment, all tokens of its row, and its heads. Keys of all tokens
/// are sent to all rows, so that nothing else counts. Takes time proportional to mesh.ulysses.
std::vector<std::int64_t> attention_share(const Mesh& mesh, int rank, std::int64_t heads,
                                          std::initializer_list<const Layout*> segments);

}  // namespace reelmesh
