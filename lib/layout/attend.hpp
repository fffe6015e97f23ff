#pragma once
#include <algorithm>
#include <functional>

#include "layout/mesh.hpp"
#include "layout/sharded.hpp"
#include "tensor/numerics.hpp"

namespace reelmesh {

/// Self-attention over tokens that are spread over a group. The tokens stand in segments (text,
/// then video), each an array of tokens with a layout of its own; every token is a key exactly
/// once, in global order. Ulysses (Jacobs et al. 2023): the ranks of a row exchange their tokens'
/// queries for heads. Ring (Liu et al. 2023): the rows cut the queries. In both, keys and values
/// come in parts of the global order, the same part to all ranks at a time, each from the ranks
/// that hold it, with the next part on its way while this one is worked on; so the bits do not
/// depend on layout and mesh, and a rank has two parts of the keys in memory, not all. Where a
/// kernel needs all keys at once (ops::attends_at_once), parts are of heads instead.
class Attend {
 public:
  /// Keys of a part. A GPU wants more to do at a time, and has the sums in memory between parts.
  static constexpr std::int64_t part_keys(bool on_gpu) { return on_gpu ? 4096 : 1024; }
  /// In how many parts keys come where a device wants them all at once: each part for some of a
  /// rank's heads. fewest: heads of the rank that has the fewest.
  static constexpr std::int64_t shares_of(std::int64_t fewest) {
    return std::clamp<std::int64_t>(fewest, 1, 4);
  }

  /// segments[i]: a partition of the tokens of segment i (any number of axes) over the group.
  /// dtype, device: of the tensors to come. On devices the constructor is collective over the
  /// group: the ranks agree on the kernel.
  Attend(const comm::Group& group, const std::vector<Layout>& segments,
         const AttentionGeometry& geometry, DType dtype, Device device,
         const Numerics& numerics = {});

  const AttentionMesh& mesh() const { return mesh_; }

  /// q: queries of this rank's tokens [token, batch, head, channel], segment after segment, each
  /// row-major in its box. keys_values: makes [token, batch, 2, head, channel] of the same tokens,
  /// while the queries are on their way. scale: of q·k before the softmax. → [token, batch, head,
  /// channel]. Collective over the group.
  Tensor operator()(const Tensor& q, const std::function<Tensor()>& keys_values, float scale) const;

 private:
  struct Rows;   // tensors and pending messages of this rank
  struct Range;  // some of a rank's tokens, or of all heads
  struct Part;   // some keys of all
  Range heads_in(int rank) const;
  Range heads_in(int rank, const Part& keys) const;
  Range tokens_in_part(int rank, const Part& part) const;
  Rows send_queries(const Tensor& q) const;
  Rows send_part(const Tensor& keys_values, const Part& keys) const;
  Tensor receive_part(Rows part, const Part& keys) const;
  Tensor return_results(const Tensor& attended, const Tensor& q) const;
  Tensor attend_at_once(Rows queries, const Tensor& mine, float scale) const;
  static Tensor heads_of(const Tensor& x, const Range& some, std::int64_t first = 0);

  comm::Group group_;
  AttentionMesh mesh_;
  std::vector<std::vector<std::int64_t>> numbers_;  ///< of each rank's tokens in global order
  DType dtype_;
  Device device_;
  Numerics numerics_;
  bool at_once_;  ///< whether all ranks attend to all keys at once
};

}  // namespace reelmesh
