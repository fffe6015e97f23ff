#pragma once
// What a user may ask of the plan: section [parallel].
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace reelmesh {

enum class Mode { automatic, split, phased };
enum class Shard { automatic, height, frames, grid };
inline constexpr std::array<std::string_view, 4> shard_names{"auto", "height", "frames", "grid"};
inline std::string_view name_of(Shard shard) {
  return shard_names[static_cast<std::size_t>(shard)];
}
enum class Order { node, rank };
/// Where weights are (layout/residence.hpp), or chosen by memory and predicted time.
enum class WeightsChoice { automatic, replicated, sharded, host };
struct ParallelRequest {
  Mode mode = Mode::automatic;
  Shard shard = Shard::automatic;
  Order order = Order::node;  ///< order of ranks in the plan: by node, or as launched
  // Ranks of each stage and sizes of mesh axes; those not given are chosen by the plan.
  std::optional<int> text, replicas, cfg, ulysses, ring, decode;
  /// Of phased mode: ranks of each denoising group, if fewer than there are. No option: set by the
  /// search for layouts.
  std::optional<int> group;
  /// Of a training: how many groups of `decode` ranks encode videos. No option: set by its plan.
  std::optional<int> encoders;
  WeightsChoice weights = WeightsChoice::automatic;  ///< of the transformer
  /// Of the text encoder. Default: as `weights`, but automatic instead of sharded, since its layers
  /// are divided among the ranks in any case.
  std::optional<WeightsChoice> text_weights;
  std::optional<WeightsChoice> decode_weights;  ///< default: host if `weights` is, else automatic
  std::string device_map = "auto";  ///< "auto", ranges "0-11:0,12-23:1", or a JSON file's path
};

}  // namespace reelmesh
