#pragma once
// One finished clip as an HDF5 file.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "layout/sharded.hpp"
#include "sampler/clip_settings.hpp"

namespace reelmesh {

/// Whether a file counts as a clip only if its attribute has the value of the clip.
enum class Compared { no, yes };

/// Metadata of a clip.
struct ClipRecord {
  int index = 0;  ///< in the job; names the file
  std::string prompt, negative_prompt;
  ClipSettings settings;  ///< all; without strength unless the clip is made from a video
  std::string model, scheduler, dtype, layout;
  std::string fingerprint;  ///< of the weights and options that the values depend on
  // Of a clip that begins from a file.
  std::optional<std::string> image, video;                 ///< the file, as given: one of them
  std::optional<std::string> input_hash;                   ///< of its bytes
  std::optional<std::string> last_image, last_image_hash;  ///< of one that it ends with
  std::optional<std::int64_t> input_frames;                ///< of a video: how many are used
  double wall_seconds = 0;
  std::vector<std::int32_t> token_ids;  ///< dataset [token]; empty: not written

  /// Calls visit(name, value, compared) for each attribute of the file. Optional values are
  /// attributes only if they are there.
  template <class Visit>
  void for_each_attribute(Visit&& visit) const {
    visit("prompt", prompt, Compared::yes);
    visit("negative_prompt", negative_prompt, Compared::yes);
    for_each_clip_setting([&](const auto& setting) {
      if (setting.shown_as == ShownAs::attribute) {
        visit(setting.name().c_str(), settings.*setting.value, Compared::yes);
      }
    });
    visit("model", model, Compared::no);
    visit("scheduler", scheduler, Compared::yes);
    visit("dtype", dtype, Compared::yes);
    visit("fingerprint", fingerprint, Compared::yes);
    visit("layout", layout, Compared::no);
    visit("image", image, Compared::no);
    visit("video", video, Compared::no);
    visit("input_hash", input_hash, Compared::yes);
    visit("input_frames", input_frames, Compared::yes);
    visit("last_image", last_image, Compared::no);
    visit("last_image_hash", last_image_hash, Compared::yes);
    visit("wall_seconds", wall_seconds, Compared::no);
  }
};

/// One value for each array of a clip file.
template <class Value>
struct OfClipArrays {
  Value video;    ///< [frame, height, width, channel], uint8
  Value latents;  ///< [latent_frame, latent_channel, latent_height, latent_width], float32
  Value prompt_embeds, negative_prompt_embeds;  ///< [token, embedding], float32
};
/// Shapes of the arrays that a complete file must have; empty for arrays that it need not have.
using ClipShapes = OfClipArrays<Shape>;
/// The arrays of a clip, each a partition or replicated; those without a value are not written.
using ClipArrays = OfClipArrays<std::optional<Sharded>>;

/// Clips from this number on are in folders of so many: programs and file systems get slow where a
/// folder has very many files.
inline constexpr int first_clip_in_folder = 10000, clips_of_folder = 1000;
/// folder/clips/000007.h5; folder/clips/012/012345.h5
std::filesystem::path clip_path(const std::filesystem::path& folder, int index);

/// Writes the file of clip_path from all ranks of `group`, which hold the arrays. Collective;
/// every rank passes the same record and the same arrays. stopped_after: of a preview, the steps
/// after which it was made; its latents are the clean ones that were predicted then.
///
/// Arrays are stored in compressed chunks with checksums, one index of the first axis each. A chunk
/// is written by one rank, so arrays are moved to whole indices of the first axis first.
///
/// The file is written under a temporary name, flushed to disk (fsync), read back and compared, and
/// only then renamed. On failure no file is left behind and all ranks throw the same error:
/// Error(cannot_create) if the file cannot be created, or exists and `replace` is not set;
/// Error(io) if writing fails, for instance on a full disk.
void write_clip(const comm::Group& group, const std::filesystem::path& folder,
                const ClipRecord& record, const ClipArrays& arrays, bool replace,
                std::optional<std::int64_t> stopped_after = {});

/// True if the file can be opened, holds the arrays in these shapes (and the token ids if
/// `expected` has some), all their values can be read with correct checksums, and the
/// attributes that are compared (ClipRecord::for_each_attribute) have the values of `expected`, and
/// it is no preview. Not collective. The
/// file is untrusted: links are not followed, plugins are not loaded, and a file that cannot be
/// parsed counts as incomplete.
bool clip_complete(const std::filesystem::path& path, const ClipRecord& expected,
                   const ClipShapes& shapes);
/// The same, but that it is a preview.
bool is_preview(const std::filesystem::path& path, const ClipRecord& expected,
                const ClipShapes& shapes);

}  // namespace reelmesh
