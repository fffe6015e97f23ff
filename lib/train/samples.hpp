#pragma once
// The samples of a training: read, checked, planned like clips that are made, and encoded once.
#include "pipeline/memory_watch.hpp"
#include "pipeline/stages.hpp"
#include "pipeline/start.hpp"
#include "store/sample_cache.hpp"
#include "train/frames.hpp"

namespace reelmesh::train {

/// What samples of one size have in common.
struct Bucket {
  VideoSize size;
  TrainingNoise noise;
  double fps = 0;  ///< of clips that the model makes
};

/// The samples that can be used, and the plan for the ranks that encode them and train on them.
struct Samples {
  /// Those that are learned from, then those of data.validation.
  std::vector<UsableSample> usable;
  std::int64_t learned = 0;  ///< how many are learned from
  /// Of the job; UsableSample::bucket is an index of it.
  std::vector<Bucket> buckets;
  /// The job whose clips these are, without guidance; the last clip has the empty
  /// caption if captions are dropped, unless the model has an embedding of its own for it.
  Job clips;
  JobPlan planned;

  const Bucket& bucket_of(std::size_t sample) const { return buckets.at(usable[sample].bucket); }
  bool has_empty_caption() const { return clips.clips.size() > usable.size(); }
  /// Which of the usable samples validate: those of data.validation, or the first four.
  std::vector<std::size_t> validating() const;
  Clip clip(std::size_t sample) const { return planned.clip(clips, planned.clips[sample]); }
  std::int64_t text_channels() const { return planned.family->text_encoder().d_model; }
};

/// The sizes that samples of a job may have, at least one, in the order of data.buckets.
/// Error(usage) if the model cannot be trained, or for a setting or layout that training does not
/// have, for data.buckets with data.height, width or frames, for data.validation without
/// train.validate-every, or for train.sample-prompts without train.sample-every; errors as
/// Family::open.
std::vector<Bucket> checked_buckets(const Job& job);
/// The plan of a training on these samples, at least one, whose videos are not read. buckets: of
/// the job, as checked_buckets(); validation: those of data.validation. Errors as plan_job.
Samples plan_samples(const Job& job, const Conditions& conditions, std::vector<Bucket> buckets,
                     std::vector<UsableSample> usable, std::vector<UsableSample> validation = {});

/// Plans a training again while it runs, for these conditions. clips: samples.clips as it is to be
/// planned now. Errors as plan_samples().
void plan_again(Samples& samples, const Job& job, Job clips, const Conditions& conditions);

/// The files of the samples in the cache. Samples with the same video, or the same caption, share
/// one.
struct CachedFiles {
  std::vector<CachedSample> videos;    ///< of each usable sample
  std::vector<CachedSample> captions;  ///< likewise, then of the empty caption if there is one
};

/// cache: their folder. encoders: what their contents depend on beside the data.
CachedFiles cached_files(const Samples& samples, const std::filesystem::path& cache,
                         const std::string& encoders);

/// Which files are missing or damaged, each once.
struct FilesToMake {
  std::vector<std::size_t> videos, captions;
};
/// Warnings as samples_to_make(). Collective.
FilesToMake files_to_make(const comm::Group& world, const CachedFiles& files);

/// The samples of data.path, or one without a caption if it is not given, for a plan: nothing is
/// known of their videos, and they have the sizes of data.buckets in turn. If these are more, the
/// last sample is repeated. Errors as read_data.
std::vector<UsableSample> listed_samples(const DataSettings& data);
/// The same of data.validation; none if it is not given.
std::vector<UsableSample> listed_validation(const DataSettings& data);

/// Makes some of the files: first the captions, by the text encoder on the ranks of the device map;
/// then the videos, each by the ranks of a decoding group. memory: looks at this rank's memory
/// before each. → false if the ranks are to leave (stop::leaving()); what is complete stays.
/// Collective.
bool encode_samples(const comm::Group& world, const Samples& samples, const CachedFiles& files,
                    const FilesToMake& to_make, const pipeline::Computing& computing,
                    pipeline::MemoryWatch& memory);

}  // namespace reelmesh::train
