#pragma once
// What the autoencoder and the text encoder make of training samples, as HDF5 files:
// CACHE/000007.h5 of sample 7 of the data, CACHE/empty.h5 of the empty caption.
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "layout/sharded.hpp"
#include "store/hdf5.hpp"

namespace reelmesh {

/// What a file was made from. Those of a prompt alone have only prompt and text_fingerprint.
struct SampleRecord {
  std::string prompt;
  std::string file;         ///< the video, as given; not compared
  std::string hash;         ///< of its bytes
  std::string fingerprint;  ///< what its latents depend on: model parts, size, frames, fps, dtype
  std::string text_fingerprint;  ///< what the embedding of a prompt depends on
};

/// The attributes that are compared, each described once, for writing and reading.
struct SampleText {
  const char* name;
  std::string SampleRecord::*text;
};
inline constexpr std::array<SampleText, 4> compared_sample_texts{{
    {"prompt", &SampleRecord::prompt},
    {"hash", &SampleRecord::hash},
    {"fingerprint", &SampleRecord::fingerprint},
    {"text_fingerprint", &SampleRecord::text_fingerprint},
}};

/// One value for each array of a file, all float32. Those of a prompt alone have only
/// prompt_embeds.
template <class Value>
struct OfSampleArrays {
  /// [latent_frame, latent_channel, latent_height, latent_width]: of the posterior, not scaled
  Value latent_mean, latent_std;
  Value prompt_embeds;  ///< [token, embedding]
  /// [row, column, channel] of the first frame, RGB from 0 to 255; only for models that take it
  Value first_frame;
};
/// Empty for arrays that the file does not have.
using SampleShapes = OfSampleArrays<Shape>;
/// Each a partition or replicated.
using SampleArrays = OfSampleArrays<std::optional<Sharded>>;

/// A file that should be there.
struct CachedSample {
  std::filesystem::path path;
  SampleRecord record;
  SampleShapes shapes;
};

/// What a sample is for.
enum class SampleUse { training, validation };

/// CACHE/000007.h5, or CACHE/000007.validation.h5: latents, prompt_embeds and first_frame
std::filesystem::path sample_path(const std::filesystem::path& cache, std::int64_t index,
                                  SampleUse use = SampleUse::training);
/// CACHE/000007.text.h5, or CACHE/000007.validation.text.h5: prompt_embeds alone, until the video
/// is encoded, too
std::filesystem::path sample_text_path(const std::filesystem::path& cache, std::int64_t index,
                                       SampleUse use = SampleUse::training);
/// CACHE/empty.h5: prompt_embeds of the empty caption
std::filesystem::path empty_caption_path(const std::filesystem::path& cache);

/// Writes a file from all ranks of `group`, which hold the arrays of sample.shapes, and makes its
/// folder: under a temporary name, flushed to disk, read back and compared, and then renamed, which
/// replaces an earlier one. Arrays are stored in chunks with checksums, uncompressed. Collective;
/// errors as write_clip.
void write_sample(const comm::Group& group, const CachedSample& sample, const SampleArrays& arrays);

/// A file of the cache, opened by this rank alone. It is untrusted.
class SampleFile {
 public:
  /// Empty if there is none or it cannot be used; then `problem` says why ("is damaged"), and is
  /// empty if there is none. Compares what the file was made from, and the shapes. Values are not
  /// read: see check(). Throws Error(data) for a file of another fingerprint, which another job may
  /// need.
  static std::optional<SampleFile> open(const CachedSample& expected, std::string& problem);

  /// Whether all values are those that were written, by their checksums.
  bool is_whole() const;
  const SampleShapes& shapes() const { return sample_.shapes; }
  /// The values of a box of an array on the host: read(&SampleShapes::latent_mean, box).
  /// Error(data) if they cannot be read.
  Tensor read(Shape SampleShapes::*array, const Box& box) const;

 private:
  CachedSample sample_;
  hdf5::File file_;
};

/// Which of these files have to be made, ascending: those that are missing, damaged, or of another
/// video or prompt, with a warning for each that is there. The ranks share the reading. Collective;
/// Error(data) as SampleFile::open.
std::vector<std::size_t> samples_to_make(const comm::Group& group,
                                         const std::vector<CachedSample>& samples);

}  // namespace reelmesh
