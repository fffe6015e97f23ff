#pragma once
// Who does what: job and machine → roles of the ranks and cuts of the arrays. Pure: no MPI, no
// files.
#include "layout/layout.hpp"
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
  Shard shard = Shard::automatic;
  DeviceMap device_map;  ///< ranks of the text group

  /// "text", "denoise", "decode", or "text+denoise+decode"; "idle" for none.
  std::string role(int rank) const;
};

/// Sizes of the text encoder that the device map is balanced by.
struct TextEncoderSizes {
  std::int64_t layers = 0;
  std::int64_t layer_bytes = 1;
  std::int64_t embedding_bytes = 0;
};

/// The roles of `ranks` ranks. Error(unavailable) where the numbers that were asked for do not add
/// up to the world (split) or do not fit it (phased), saying what was asked and what there is.
/// `device_map_file`: contents of parallel.device-map where it names a JSON file.
Plan make_plan(const ParallelRequest& request, const TextEncoderSizes& text_encoder, int ranks,
               const std::string& device_map_file = {});

/// Layout of the tokens [frame, row, column] of a clip over `ranks` ranks: rows cut, frames cut, or
/// a grid of both; automatic takes what gives the smallest largest box, rows before others.
Layout token_layout(Shard shard, const Shape& grid, int ranks);

/// Several lines for people: roles and device map.
std::string describe(const Plan& plan);
/// Several lines for people: roles, device map, and the boxes of a clip with this token grid.
std::string describe(const Plan& plan, const Shape& grid);

}  // namespace reelmesh
