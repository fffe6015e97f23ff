#pragma once
// Which ranks encode text, denoise and decode.
#include <optional>
#include <string>
#include <vector>

#include "plan/request.hpp"

namespace reelmesh {

/// Consecutive ranks of the job that work on one stage together.
struct RankRange {
  int first = 0;
  int count = 0;
  bool contains(int rank) const { return rank >= first && rank < first + count; }
  friend bool operator==(const RankRange&, const RankRange&) = default;
};

std::string to_string(const RankRange& ranks);  ///< "rank 0", "ranks 0-3"

/// Requested sizes of the axes of a denoising group's mesh; those not given are chosen.
struct MeshRequest {
  std::optional<int> cfg, ulysses, ring;
  std::int64_t product() const;  ///< of the given sizes
};

/// Number of ranks of a denoising group: the largest multiple of request.product() that is at most
/// `available`; the product itself if all three sizes are given or nothing fits.
std::int64_t group_size(const MeshRequest& request, int available);

struct Roles {
  Mode mode = Mode::phased;  ///< split or phased
  RankRange text;
  std::vector<RankRange> denoise;  ///< per replica
  /// Phased: per replica, within its ranks, or one group for all replicas; of a training those that
  /// encode videos (ParallelRequest::encoders). Split: one group.
  std::vector<RankRange> decode;

  /// The index in `decode` of the group that decodes the clips of a replica.
  std::size_t decoder(std::size_t replica) const { return decode.size() > 1 ? replica : 0; }

  /// "text", "denoise", "decode", or "text+denoise+decode"; "idle" for none.
  std::string of(int rank) const;
};

/// A warning if some of the `ranks` ranks have no role: "rank 3 has nothing to do in this layout",
/// "ranks 3-5 and 7 have nothing to do in this layout"; otherwise empty.
std::string idle_text(const Roles& roles, int ranks);

/// Assigns ranks to stages. With several replicas in phased mode each decodes its own clips, on all
/// of its ranks or on the first request.decode of them, if that is fewer. Error
/// (unavailable) if the requested numbers do not add up to `ranks` (split) or exceed them (phased);
/// it names the request and the number of ranks.
Roles assign_roles(const ParallelRequest& request, int ranks);

}  // namespace reelmesh
