#pragma once
// What the autoencoder makes of videos and the text encoder of captions, as HDF5 files that are
// named by what they were made from: CACHE/<32 hexadecimal digits>.h5. Several jobs may use them at
// the same time.
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "layout/sharded.hpp"
#include "store/hdf5.hpp"

namespace reelmesh {

/// What a file was made from. That of a caption has prompt and text_fingerprint, that of a video
/// the others.
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

/// One value for each array of a file, all float32. That of a caption has prompt_embeds, that of a
/// video the others.
template <class Value>
struct OfSampleArrays {
  /// [latent_frame, latent_channel, latent_height, latent_width]: of the posterior, not scaled
  Value latent_mean, latent_std;
  Value prompt_embeds;  ///< [token, embedding]
  /// [row, column, channel] of the first frame, RGB from 0 to 255; only for models that take it
  /// with other noise in each step
  Value first_frame;
  // Only for models that take the first frame as it is: what their encoders make of it.
  Value image_latents;  ///< as latent_mean: of a video that begins with it and is grey, as the
                        ///< transformer takes them
  Value image_rows;     ///< [row, channel] of the vision encoder
};
/// Empty for arrays that the file does not have.
using SampleShapes = OfSampleArrays<Shape>;
/// Each a partition or replicated.
using SampleArrays = OfSampleArrays<std::optional<Sharded>>;

/// The names of the arrays that a file has.
std::vector<std::string> names_of_arrays(const SampleShapes& shapes);

/// A file that should be there.
struct CachedSample {
  std::filesystem::path path;
  SampleRecord record;
  SampleShapes shapes;
};

/// CACHE/<hash of the texts of `record` that are compared>.h5
std::filesystem::path cached_path(const std::filesystem::path& cache, const SampleRecord& record);

/// Writes a file from all ranks of `group`, which hold the arrays of sample.shapes, to a folder
/// that is there: under a temporary name of this process, flushed to disk, read back and compared,
/// and then renamed, unless another job has made the same file meanwhile; only a file that cannot
/// be used is replaced. Arrays are stored in chunks with checksums, uncompressed. Collective;
/// errors as write_clip.
void write_sample(const comm::Group& group, const CachedSample& sample, const SampleArrays& arrays);

/// Makes the folder, if there is none, and removes unfinished files that no job writes any more:
/// those of processes of this host that have ended, and those that are more than a day old. Others
/// may be of jobs that run, and stay. Error(cannot_create) if a file cannot be made in it.
void prepare_cache(const std::filesystem::path& cache);

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
