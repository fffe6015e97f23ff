#pragma once
// The state of a clip between two denoising steps, as an HDF5 file OUT/restart/NNNNNN.h5.
#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "store/arrays.hpp"
#include "store/clip.hpp"

namespace reelmesh {

/// What a restart file says of its clip; the arrays are in the file.
struct RestartRecord {
  ClipRecord clip;           ///< layout and wall_seconds are not used
  std::string inputs;        ///< what else the state depends on: size, token ids of all texts
  std::int64_t step = 0;     ///< number of completed steps
  std::string generator;     ///< TorchGenerator::saved()
  std::int64_t history = 0;  ///< number of arrays history0, history1, …
  /// Of clips with the array latents_before: the sum of the steps since the last computed one.
  double cache_sum = 0;
};

/// One array of a state: float32, a partition or replicated.
struct RestartArray {
  std::string name;  ///< one of `restart_arrays`, or history_name(i)
  Sharded values;
};

/// Shapes of the arrays of a clip.
struct RestartShapes {
  Shape latents;         ///< [frame, channel, row, column]; those of its history have the same
  Shape embeddings;      ///< [token, text, channel]
  Shape image_latents;   ///< [frame, channel, row, column]; empty: none
  Shape image_rows;      ///< [row, channel]; empty: none
  Shape residual;        ///< [frame, row, column, branch, channel] of tokens; empty: none
  Shape latents_before;  ///< as latents; empty: none
};

inline constexpr const char *residual_name = "residual", *latents_before_name = "latents_before";
inline const std::array<ArrayKind<RestartShapes>, 6> restart_arrays{{
    {"latents", "latents as they are denoised", &RestartShapes::latents},
    {"embeddings", "text embeddings, of the negative prompt first", &RestartShapes::embeddings},
    {"image_latents", "latents of the image that the clip begins from",
     &RestartShapes::image_latents},
    {"image_rows", "rows of the encoder of that image, which the transformer attends to",
     &RestartShapes::image_rows},
    {residual_name, "what the transformer's blocks added to the tokens in the last computed step",
     &RestartShapes::residual},
    {latents_before_name, "latents before the last step", &RestartShapes::latents_before},
}};
static_assert(restart_arrays.size() * sizeof(Shape) == sizeof(RestartShapes),
              "an array of a restart is not described in restart_arrays");
/// Of what the sampler keeps of earlier steps: "history0", …
std::string history_name(std::int64_t i);

/// The version of restart files, as their attribute restart_version. Others are not read.
constexpr std::int64_t restart_version = 3;

/// folder/restart/000007.h5
std::filesystem::path restart_path(const std::filesystem::path& folder, int clip);

/// Writes a restart file from all ranks of `group`, which hold the arrays, as write_arrays. They
/// are stored in chunks with checksums, uncompressed. Collective; errors as write_arrays.
void write_restart(const comm::Group& group, const std::filesystem::path& folder,
                   const RestartRecord& record, const std::vector<RestartArray>& arrays);

/// A restart file that has been checked.
class RestartFile {
 public:
  /// Reads the file of a clip on this rank alone. Empty unless it exists, all its values can be
  /// read with correct checksums, the arrays have these shapes, and it is of the same clip (as
  /// clip_complete compares, and with the same inputs). The file is untrusted.
  static std::optional<RestartFile> open(const std::filesystem::path& folder,
                                         const ClipRecord& clip, const std::string& inputs,
                                         const RestartShapes& shapes);

  /// The steps that are completed, as the file of a clip says, of which nothing else is checked; 0
  /// if there is none.
  static std::int64_t step_of(const std::filesystem::path& folder, int clip);

  /// Whether the file of a clip is a restart file of another version.
  static bool has_other_version(const std::filesystem::path& folder, int clip);

  const RestartRecord& record() const { return record_; }
  /// The values of a box of an array, on the host. Error(io).
  Tensor read(const std::string& name, const Box& box) const;

 private:
  hdf5::File file_;
  RestartRecord record_;
};

/// Removes the file of a clip, or those of all clips. Called on one rank; ignores errors.
void remove_restart(const std::filesystem::path& folder, int clip);
void remove_restarts(const std::filesystem::path& folder);

}  // namespace reelmesh
