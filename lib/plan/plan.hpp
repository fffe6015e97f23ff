#pragma once
// Who does what: job and machine → roles of the ranks and cuts of the arrays. Pure: no MPI, no
// files.
#include "plan/denoise.hpp"
#include "plan/device_map.hpp"
#include "plan/job.hpp"

namespace reelmesh {

/// Consecutive ranks of the world that do one stage together.
struct RankRange {
  int first = 0;
  int count = 0;
  bool contains(int rank) const { return rank >= first && rank < first + count; }
  friend bool operator==(const RankRange&, const RankRange&) = default;
};

struct Plan {
  int ranks = 1;
  Mode mode = Mode::phased;  ///< split or phased
  RankRange text;
  std::vector<RankRange> denoise;  ///< one a replica; clip i goes to replica i % size
  RankRange decode;
  MeshRequest mesh;  ///< of a denoising group
  Shard shard = Shard::automatic;
  DeviceMap device_map;        ///< ranks of the text group
  std::vector<double> speeds;  ///< of all ranks; empty: equal
  bool in_turn = false;        ///< transformer and decoder take turns in memory (plan/memory.hpp)

  /// Speeds of some of the ranks; empty: equal.
  std::vector<double> speeds_of(const RankRange& range) const;

  /// "text", "denoise", "decode", or "text+denoise+decode"; "idle" for none.
  std::string role(int rank) const;
};

/// Sizes of the text encoder that the device map is balanced by.
struct TextEncoderSizes {
  std::int64_t layers = 0;
  std::int64_t layer_bytes = 1;
  std::int64_t embedding_bytes = 0;
  /// Bytes that each rank of the world has for its part of it; empty: no limit.
  std::vector<std::int64_t> rooms;
};

/// The roles of `ranks` ranks. Error(unavailable) where the numbers that were asked for do not add
/// up to the world (split) or do not fit it (phased), saying what was asked and what there is.
/// `device_map_file`: contents of parallel.device-map where it names a JSON file.
Plan make_plan(const ParallelRequest& request, const TextEncoderSizes& text_encoder, int ranks,
               const std::string& device_map_file = {});

/// How a clip of these sizes lies over the ranks of a replica.
DenoiseLayout denoise_layout(const Plan& plan, const DenoiseSizes& sizes, std::size_t replica);

/// Several lines for people: roles and device map.
std::string describe(const Plan& plan);
/// Several lines for people: roles, device map, and how a clip of these sizes lies over the
/// first replica.
std::string describe(const Plan& plan, const DenoiseSizes& sizes);

}  // namespace reelmesh
