#pragma once
// Weights that are in memory only around their use. The parameters of a layer (what the checkpoint
// says), their packed form (what a processor multiplies, ops::LinearForm) and their residence
// (where they are while no layer uses them) are three things; this file knows the last one. Bytes
// only move, so results do not depend on it.
#include <memory>
#include <vector>

#include "comm/group.hpp"
#include "layout/layout.hpp"
#include "layout/residence.hpp"
#include "ops/linear.hpp"

namespace reelmesh {

struct WeightPlacement {
  Residence residence = Residence::replicated;
  /// The ranks that call the same layers in the same order.
  comm::Group group;
  /// sharded: shares of the ranks are in proportion to these weights; empty: equal.
  RankWeights shares;
  /// sharded, on CPUs: the ranks' processors differ, so that plain weights are gathered, and packed
  /// before each use.
  bool unlike_processors = false;
  /// The fraction of the weights that stays packed on each rank nevertheless, 0 to 1.
  double resident = 0;
  /// Of a model of two experts only the weights of the one whose steps are computed are in memory.
  /// Only if they are replicated.
  bool experts_in_turn = false;
};

/// A weight is fetched in parts: on a CPU of at most this many bytes, unless a single tile is
/// larger; on a GPU as a whole.
constexpr std::int64_t max_part_bytes = std::int64_t{16} << 20;
/// Bytes of the memory through which fetched weights pass, if the largest part has this size: while
/// one is used, the next ones arrive.
constexpr std::int64_t fetch_window(std::int64_t largest_part) { return 2 * largest_part; }

/// Whether a layer that is used out of the order of its stream is an Error(internal), as in tests.
/// Otherwise jobs are warned: results are right, but no fetch overlaps with computation.
inline bool wrong_order_is_error = false;

/// The linear layers of a model that are called one after the other, in the order of add(), again
/// and again. While a layer computes, the weights of the next ones are fetched, as many as the
/// window has room for. A pass may end early; the next one begins at the first layer.
class WeightStream {
 public:
  explicit WeightStream(const WeightPlacement& placement);
  ~WeightStream();
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;

  /// A layer with this weight and bias [out] (or empty). Reads only what this rank keeps; with
  /// Residence::host on a CPU, `weight.read` is also called at each use. Collective over the group,
  /// unless weights are replicated.
  ops::Linear add(const ops::WeightRows& weight, const Tensor& bias);
  /// A layer of add() that is called once more in each pass, after those added so far.
  ops::Linear again(const ops::Linear& layer);
  /// Whether calls of the layers on a GPU can be captured in a CUDA graph: false if the host takes
  /// part in messages between ranks.
  bool capturable() const;

 private:
  class State;
  class Source;
  std::shared_ptr<State> state_;
};

}  // namespace reelmesh
