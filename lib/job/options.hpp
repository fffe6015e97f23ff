#pragma once
// The table of all options of a job. From it come the command line, job files, --help, suggestions,
// the list of options in effect, and the fingerprint of clips.
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "job/job.hpp"

namespace reelmesh {

/// A job while its options are being parsed. job.train has a value from the beginning if it is a
/// training job.
struct Draft {
  Job job;
  std::vector<std::string> texts;     ///< prompt.text
  std::filesystem::path prompt_file;  ///< prompt.file
  std::string negative;               ///< prompt.negative
  int repeat = 1;                     ///< prompt.repeat

  /// The path, not empty, that an option has. All options with paths call it, so that none is left
  /// out of job.paths, by which require_inputs_kept() protects what a job reads.
  std::filesystem::path path(PathUse use, std::string_view text, const std::string& option);
};

/// What depends on an option, and so what a resumed job compares.
enum class Effect {
  clips,        ///< which clips there are, or a setting that each of them has
  model,        ///< weights and configs; their hash is in the fingerprint of clips
  device,       ///< the kind of device, which is in the fingerprint
  attribute,    ///< bits of all clips; an attribute of each
  fingerprint,  ///< bits of all clips, or of what is trained; its value is in the fingerprint
  no_bits,      ///< layout, memory, files, messages: no bit of a result
};

/// What is made: clips (`run`), or a LoRA (`train`). Of an option: which jobs have it.
enum class JobKind { any, clips, training };

/// What a job computes with, found when it begins.
struct Computation {
  bool on_gpu = false;
  /// CPUs, bfloat16: what products are computed in (ops::bfloat16_products); otherwise empty.
  std::string products;
};

struct Option {
  const char* name;      ///< "section.key"
  const char* value;     ///< of --help, as in HelpLine: "auto|split|phased", "FILE|none"
  const char* help;      ///< includes the default if `fallback` is null
  const char* fallback;  ///< default value; nullptr: none
  Effect effect;
  /// Parses the value into the draft. Error messages begin with `option`.
  void (*set)(Draft& draft, std::string_view text, const std::string& option);
  bool repeatable = false;
  /// For Effect::fingerprint: the value in effect; empty if the job's bits do not depend on it.
  std::string (*in_effect)(const Job& job, const Computation& by) = nullptr;
  JobKind kind = JobKind::any;
  bool of_rate = false;  ///< train.new-rate lets a training go on with another value

  /// Whether jobs of this kind have the option; those of any kind have all.
  bool is_of(JobKind job) const {
    return kind == JobKind::any || job == JobKind::any || kind == job;
  }
};

inline JobKind kind_of(const Job& job) { return job.train ? JobKind::training : JobKind::clips; }

/// In the order of --help; options of a section are contiguous.
std::span<const Option> options();

/// What clips depend on beside their attributes: the hash of the model, and the options that change
/// bits. Clips of unequal fingerprints are not taken for each other. Of a training job: what its
/// state depends on beside the samples; the model is the one that is trained, before training.
std::string fingerprint(const std::string& model_hash, const Job& job, const Computation& by);

/// What the encoded samples of a training depend on beside their contents: model, type, and how
/// the encoders compute.
std::string encoders_fingerprint(const std::string& model_hash, const Job& job,
                                 const Computation& by);

}  // namespace reelmesh
