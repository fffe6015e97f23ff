#pragma once
// How one clip lies over the ranks of a denoising group: mesh, cuts, and what they cost.
#include <optional>

#include "layout/mesh.hpp"
#include "plan/job.hpp"

namespace reelmesh {

/// What was asked for; not given means chosen.
struct MeshRequest {
  std::optional<int> cfg, ulysses, ring;
};

/// Ranks of a group: branches of guidance × ring rows × Ulysses columns. The last varies fastest,
/// so that those who exchange most are neighbours.
struct Mesh {
  int cfg = 1, ring = 1, ulysses = 1;
  int branch_ranks() const { return ring * ulysses; }  ///< that work on the same branches
  int ranks() const { return cfg * branch_ranks(); }
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

std::string to_string(const Mesh& mesh);  ///< "cfg 2 x ring 1 x ulysses 4"

/// The sizes that decide.
struct DenoiseSizes {
  Shape grid;  ///< video tokens [frame, row, column]
  std::int64_t text_tokens = 0;
  std::int64_t branches = 1;  ///< of guidance: 1 or 2
  std::int64_t heads = 1, head_channels = 1, layers = 1;
  std::int64_t element_bytes = 4;  ///< of what attention exchanges
  std::int64_t token_values = 64;  ///< numbers of the latents that one token stands for
};

struct DenoiseLayout {
  Mesh mesh;
  Layout grid, text;  ///< tokens over mesh.branch_ranks(); both halves of cfg 2 have the same
  std::string why;    ///< one line

  /// What a rank of the group does and sends in one step.
  double step_flops(const DenoiseSizes& sizes, int rank) const;
  std::int64_t step_bytes(const DenoiseSizes& sizes, int rank) const;
};

/// Ranks of a group that may have up to `available`: as many as the given numbers multiply to,
/// times as often as that fits where a number is left open.
std::int64_t group_size(const MeshRequest& request, int available);

/// The layout of a clip over `ranks` ranks, a multiple of the numbers asked for. Where there are
/// two branches, the first factor of 2 that is left open goes to them: branches meet once a step,
/// tokens in every layer. Of the meshes that remain, those are preferred whose fullest rank has at
/// most 1.1 times the work of the emptiest, and of these the cheapest: operations of the fullest
/// rank and bytes of the rank that sends most, a byte for as much as `flops_per_byte` operations. A
/// clip of one branch has no use for cfg: its ranks go to the ring. Where speeds of the ranks are
/// given, tokens are cut by them, and time stands for work; heads are not, so that rings are more
/// even then.
DenoiseLayout denoise_layout(const MeshRequest& request, Shard shard, const DenoiseSizes& sizes,
                             int ranks, const std::vector<double>& speeds = {});

/// Between 20 (cores that share memory) and 10000 (GPUs on a network).
constexpr double flops_per_byte = 1000;

/// Layout of the tokens [frame, row, column] of a clip over `ranks` ranks: rows cut, frames cut, or
/// a grid of both; automatic takes what lets the last rank be done first, rows before others, and
/// boxes of unlike cuts (bisected) where they are more even. Boxes are proportional to `speeds`
/// where these are given.
Layout token_layout(Shard shard, const Shape& grid, int ranks,
                    const std::vector<double>& speeds = {});

/// Layout of the text tokens: those ranks have most of them that are done first with the video's.
Layout text_layout(std::int64_t tokens, const Layout& grid, const std::vector<double>& speeds = {});

}  // namespace reelmesh
