#pragma once
// One finished clip as an HDF5 file.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "layout/sharded.hpp"

namespace reelmesh {

/// Metadata of a clip; each member except `index` and `token_ids` is an attribute of the file.
struct ClipRecord {
  int index = 0;  ///< in the job; names the file
  std::string prompt, negative_prompt;
  std::uint64_t seed = 0;
  int steps = 0;
  double guidance = 0;
  double fps = 0;  ///< frames per second
  std::string model, scheduler, dtype, layout;
  std::string fingerprint;  ///< of the weights and options that the values depend on
  // Of a clip that begins from a file; otherwise empty, and not written.
  std::string image, video;                  ///< the file, as given: one of them
  std::string input_hash;                    ///< of its bytes
  std::optional<std::int64_t> input_frames;  ///< of a video: how many are used
  std::optional<double> strength;            ///< video to video: share of the steps
  double wall_seconds = 0;
  std::vector<std::int32_t> token_ids;  ///< dataset [token]; empty: not written
};

/// Shapes of the arrays that a complete file must have; empty for arrays that it need not have.
struct ClipShapes {
  Shape video;    ///< [frame, height, width, channel]
  Shape latents;  ///< [latent_frame, latent_channel, latent_height, latent_width]
  Shape prompt_embeds, negative_prompt_embeds;  ///< [token, embedding]
};

/// folder/clips/000007.h5
std::filesystem::path clip_path(const std::filesystem::path& folder, int index);

/// Writes folder/clips/NNNNNN.h5 from all ranks of `group`, which hold the arrays. Null arrays are
/// not written. Collective; every rank passes the same record and the same arrays.
///
/// `video` is uint8 [frame, height, width, channel], the other arrays are float32 in the shapes of
/// ClipShapes; each is a partition or replicated. Arrays are stored in compressed chunks with
/// checksums, one index of the first axis each. A chunk is written by one rank, so arrays are moved
/// to whole indices of the first axis first.
///
/// The file is written under a temporary name, flushed to disk (fsync), read back and compared, and
/// only then renamed. On failure no file is left behind and all ranks throw the same error:
/// Error(cannot_create) if the file cannot be created, or exists and `replace` is not set;
/// Error(io) if writing fails, for instance on a full disk.
void write_clip(const comm::Group& group, const std::filesystem::path& folder,
                const ClipRecord& record, const Sharded* video, const Sharded* latents,
                const Sharded* prompt_embeds, const Sharded* negative_prompt_embeds, bool replace);

/// True if the file can be opened, holds the arrays in these shapes (and the token ids if
/// `expected` has some), all their values can be read with correct checksums, and it was made with
/// the same prompts, seed, steps, guidance, fps, scheduler, dtype and fingerprint, and from the
/// same bytes of an image or video (not: the same path of the model or file). Not collective. The
/// file is untrusted: links are not followed, plugins are not loaded, and a file that cannot be
/// parsed counts as incomplete.
bool clip_complete(const std::filesystem::path& path, const ClipRecord& expected,
                   const ClipShapes& shapes);

}  // namespace reelmesh
