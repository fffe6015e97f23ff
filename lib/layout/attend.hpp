#pragma once
#include <algorithm>
#include <functional>
#include <span>

#include "layout/mesh.hpp"
#include "layout/sharded.hpp"
#include "layout/token_columns.hpp"
#include "ops/attention.hpp"
#include "tensor/cuda/strided_copy.hpp"

namespace reelmesh {

/// Makes all ranks of the group attend to `keys` keys with the kernel that is the fastest on the
/// first rank, and calls ops::prepare_attend for the shapes of this rank, which have these keys,
/// channels and type. Collective over the group: throws Error(unavailable) on all ranks if the
/// kernel does not support a shape of one of them.
void prepare_attend(const comm::Group& group, Device device, DType dtype, std::int64_t keys,
                    std::int64_t channels, std::span<const ops::AttentionShape> shapes,
                    const Numerics& numerics);

/// How the rows [own token, channel] of a rank become those of whole sequences for its heads,
/// [token, channel of own heads], and back. Empty functions: they are.
struct SequenceMoves {
  std::function<Tensor(const Tensor&)> to_whole, to_own;
};

/// Attention of q [token, batch, head, channel] to keys_values [token, batch, 2, head, channel],
/// own tokens, that records itself on the tape which records now. Forward and backward each rank
/// computes whole sequences for its heads (ops/attention_backward.hpp), of which `sequences` follow
/// one another. → as q. Gradients of both. Collective if the moves are.
Tensor attend_recorded_together(const Tensor& q, const Tensor& keys_values, float scale,
                                const Numerics& numerics, std::int64_t sequences,
                                const SequenceMoves& of_queries, const SequenceMoves& of_keys);

/// Attention of q [own token, batch, head, channel] to keys_values [key, batch, 2, head, channel]
/// that every rank has (of a text); one sequence. columns: of the tokens of q. → as q. Gradients of
/// both, where it is collective.
Tensor attend_to_whole_together(const TokenColumns& columns, const Tensor& q,
                                const Tensor& keys_values, float scale, const Numerics& numerics);

/// Self-attention over tokens that are sharded over a group. The tokens form segments (text, then
/// video), each with its own layout; every token is a key exactly once, in global order. Ulysses
/// (Jacobs et al. 2023): the ranks of a mesh row exchange queries, so that each has all tokens of
/// the row for its share of the heads. Ring (Liu et al. 2023): mesh rows divide the queries. In
/// both, keys and values are processed in parts of the global order. All ranks receive the same
/// part at the same time, directly from the ranks that hold it, and the next part is sent while the
/// current one is computed. So the bits do not depend on layout and mesh, and a rank has two parts
/// of the keys in memory, not all. If the kernel needs all keys at once
/// (ops::uses_fused_attention), the parts are shares of the heads instead. With Ulysses and ring
/// together, the ranks of a row first exchange keys and values as they do queries. Then a rank
/// sends those of its row to one rank of each other row. So a rank has (ulysses − 1) + (ring − 1)
/// peers instead of ulysses · ring − 1, and sends as many bytes; if a row is on one node, each key
/// leaves the node once for each other row.
class Attend {
 public:
  /// Keys per part. Larger on a GPU, which needs more work per kernel, and which writes the partial
  /// sums to memory after each part.
  static constexpr std::int64_t part_keys(bool on_gpu) { return on_gpu ? 4096 : 1024; }
  /// The number of parts if the kernel needs all keys at once: each part is a share of a rank's
  /// heads. heads: the minimum of a rank. More shares leave less of the messages to wait for, but
  /// each ends with multiprocessors that have nothing to do. So over links within a node (`near`)
  /// there are only as many as leave each share six waves of thread blocks; a multiprocessor
  /// computes a tile of 128 queries at a time. tiles: of one head, of all batch items. Between
  /// nodes there are as many as leave each message 4 MiB, which takes several times the latency.
  /// message: bytes of keys and values that one rank sends to another, for all shares.
  static constexpr std::int64_t head_shares(std::int64_t heads, std::int64_t tiles,
                                            std::int64_t multiprocessors, bool near,
                                            std::int64_t message) {
    constexpr std::int64_t max = 4, waves = 6, smallest = std::int64_t{4} << 20;
    std::int64_t shares = std::clamp<std::int64_t>(heads, 1, max);
    if (!near) return std::clamp<std::int64_t>(message / smallest, 1, shares);
    while (shares > 1 && heads / shares * tiles < waves * multiprocessors) --shares;
    return shares;
  }
  /// Queries of a tile.
  static constexpr std::int64_t tile_queries = 128;

  /// segments[i]: a partition of the tokens of segment i (any number of axes) over the group.
  /// dtype, device: of q, keys and values. On GPUs the constructor is collective over the group:
  /// the ranks agree on the kernel, and make its plans. Throws Error(unavailable) on all ranks if
  /// the kernel does not support the shape of one of them.
  Attend(const comm::Group& group, const std::vector<Layout>& segments,
         const AttentionGeometry& geometry, DType dtype, Device device,
         const Numerics& numerics = {});

  const AttentionMesh& mesh() const { return mesh_; }
  /// The number of shares of the heads, if the kernel needs all keys at once, otherwise 1; the same
  /// on all ranks.
  std::int64_t shares() const { return shares_; }

  /// q: queries of this rank's tokens [token, batch, head, channel], segment after segment, each
  /// row-major in its box. keys_values: computes [token, batch, 2, head, channel] of the same
  /// tokens, called while the queries are being sent. scale: factor of q·k before the softmax.
  /// → [token, batch, head, channel]. Collective over the group.
  ///
  /// Gradients of queries, keys and values, of a batch of one: attend_recorded_together().
  Tensor operator()(const Tensor& q, const std::function<Tensor()>& keys_values, float scale) const;

 private:
  struct Rows;  // this rank's tensors with their pending messages
  struct Part;  // a range of all keys, for a share of the heads
  // [begin, begin + count) of the tokens that a rank holds, or of all heads.
  struct Range {
    std::int64_t begin, count;
  };
  // Ranks that send one another their keys and values: all, those of a row, or one of each row.
  struct Holders {
    std::vector<int> ranks;
    std::vector<std::vector<std::int64_t>> numbers;  // of each one's tokens among those of all
    std::size_t me = 0;                              // this rank
    Range heads{0, 0};                               // that they hold
  };
  /// Collective.
  std::int64_t choose_shares() const;
  Part share_of_heads(std::int64_t share) const;
  Range heads_in(int rank) const;
  Range heads_in(int rank, const Part& keys) const;
  void find_holders(std::vector<std::vector<std::int64_t>> numbers);
  Rows send_queries(const Tensor& q) const;
  Tensor gather_row(const Tensor& keys_values) const;
  Rows send_part(const Tensor& keys_values, const Part& keys, const Holders& holders) const;
  Tensor receive_part(Rows part, const Part& keys, const Holders& holders) const;
  Tensor return_results(const Tensor& attended, const Tensor& q) const;
  Tensor attend_to_all_keys(Rows queries, const Tensor& mine, float scale) const;
  std::vector<Range> heads_of_row() const;
  static Tensor dense_heads(const Tensor& x, const Range& some, std::int64_t first = 0);
  static std::vector<Tensor> parts_of(const Tensor& packed, const Shape& shape,
                                      std::span<const Range> ranges);
  static std::vector<gpu::StridedCopy> copies(const Shape& shape, std::int64_t first,
                                              std::span<const Range> ranges);
  static std::vector<Tensor> pack_heads(const Tensor& x, std::int64_t first,
                                        std::span<const Range> ranges);
  static void unpack_heads(const Tensor& packed, std::span<const Range> ranges, Tensor& x);

  comm::Group group_;
  AttentionMesh mesh_;
  TokenColumns columns_;
  Holders row_;      ///< if there are several rows and columns: this rank's row
  Holders holders_;  ///< of the parts
  DType dtype_;
  Device device_;
  Numerics numerics_;
  bool needs_all_keys_;  ///< whether all ranks use a kernel that needs all keys at once
  std::int64_t shares_ = 1;
};

}  // namespace reelmesh
