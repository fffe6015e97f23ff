#pragma once
// Which ranks encode text, denoise and decode.
#include <optional>
#include <string>
#include <vector>

#include "plan/job.hpp"

namespace reelmesh {

/// Consecutive ranks of the job that do one stage together.
struct RankRange {
  int first = 0;
  int count = 0;
  bool contains(int rank) const { return rank >= first && rank < first + count; }
  friend bool operator==(const RankRange&, const RankRange&) = default;
};

std::string to_string(const RankRange& ranks);  ///< "rank 0", "ranks 0-3"

/// Sizes of the axes of a denoising group's mesh as asked for; not given means chosen.
struct MeshRequest {
  std::optional<int> cfg, ulysses, ring;
  std::int64_t product() const;  ///< of those that are given
};

/// Ranks of a denoising group that may have up to `available`: the largest multiple of the given
/// sizes that fits; where all three are given, or nothing fits, their product.
std::int64_t group_size(const MeshRequest& request, int available);

struct Roles {
  Mode mode = Mode::phased;  ///< split or phased
  RankRange text;
  std::vector<RankRange> denoise;  ///< of each replica
  RankRange decode;

  /// "text", "denoise", "decode", or "text+denoise+decode"; "idle" for none.
  std::string of(int rank) const;
};

/// What to warn of where some of so many ranks have no role: "rank 3 has nothing to do in this
/// layout", "ranks 3-5 and 7 have nothing to do in this layout"; otherwise empty.
std::string describe_idle(const Roles& roles, int ranks);

/// Error(unavailable) where the numbers that were asked for do not add up to `ranks` (split) or do
/// not fit (phased), saying what was asked for and what there is.
Roles assign_roles(const ParallelRequest& request, int ranks);

}  // namespace reelmesh
