#pragma once
// One finished clip as an HDF5 file.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "layout/sharded.hpp"

namespace reelmesh {

/// What is known of a clip besides its arrays; each member but `index` and `token_ids` is an
/// attribute of the file.
struct ClipRecord {
  int index = 0;  ///< in the job; names the file
  std::string prompt, negative_prompt;
  std::uint64_t seed = 0;
  int steps = 0;
  double guidance = 0;
  double fps = 0;  ///< frames per second
  std::string model, scheduler, dtype, layout;
  double wall_seconds = 0;
  std::vector<std::int32_t> token_ids;  ///< dataset [token]; empty: not kept
};

/// The arrays that a complete file must have; an empty shape means that it need not.
struct ClipShapes {
  Shape video;    ///< [frame, height, width, channel]
  Shape latents;  ///< [latent_frame, latent_channel, latent_height, latent_width]
  Shape prompt_embeds, negative_prompt_embeds;  ///< [token, embedding]
};

/// folder/clips/000007.h5
std::filesystem::path clip_path(const std::filesystem::path& folder, int index);

/// Writes folder/clips/NNNNNN.h5 from all ranks of `group`, which hold the arrays. A null array is
/// not kept. Collective; every rank gives the same record and keeps the same arrays.
///
/// `video` is uint8 [frame, height, width, channel] in any partition or replicated layout: it moves
/// to whole frames first, since a compressed chunk is one frame and is written by one rank. The
/// others are float32 in the shapes of ClipShapes, and each rank writes the box that it holds.
///
/// The file is written under a temporary name, brought to the disk, read back and compared, and
/// only then renamed. On failure nothing is left behind and all ranks throw the same error:
/// Error(cannot_create) where the file cannot be made, or exists and `replace` is not set;
/// Error(io) where writing fails, as on a full disk.
void write_clip(const comm::Group& group, const std::filesystem::path& folder,
                const ClipRecord& record, const Sharded* video, const Sharded* latents,
                const Sharded* prompt_embeds, const Sharded* negative_prompt_embeds, bool replace);

/// True where the file can be opened, holds the arrays in these shapes (and the token ids where
/// `expected` has some), and was made from the same prompts, seed, steps, guidance, fps, model,
/// scheduler and dtype. Not collective. The file need not be one of ours: no links are followed and
/// no plugins loaded, and what cannot be understood is simply not complete.
bool clip_complete(const std::filesystem::path& path, const ClipRecord& expected,
                   const ClipShapes& shapes);

}  // namespace reelmesh
