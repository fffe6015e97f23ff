#pragma once
// Noise levels of the diffusion process and the timesteps at which the model is called. Source:
// CogVideoXDDIMScheduler and CogVideoXDPMScheduler of diffusers, which share these rules.
#include <cstdint>
#include <string>
#include <vector>

namespace reelmesh {

/// Of a schedule: a table of 8 MB. Released models have 1000.
inline constexpr std::int64_t max_train_timesteps = 1'000'000;

/// The fields of scheduler_config.json that have an effect. (clip_sample, clip_sample_range,
/// sample_max_value and eta have none in these schedulers.) Those that are missing have diffusers'
/// defaults, which are not the values of released models.
struct SchedulerConfig {
  double beta_start = 0.00085;
  double beta_end = 0.012;
  std::string beta_schedule = "scaled_linear";  ///< the only one supported
  bool has_trained_betas = false;               ///< trained_betas is not null; must be false
  std::int64_t num_train_timesteps = 1000;
  std::string prediction_type = "epsilon";  ///< only "v_prediction" is supported
  bool rescale_betas_zero_snr = false;
  double snr_shift_scale = 3.0;
  bool set_alpha_to_one = true;
  std::int64_t steps_offset = 0;             ///< only used by "leading"
  std::string timestep_spacing = "leading";  ///< or "trailing", "linspace"

  bool operator==(const SchedulerConfig&) const = default;
};

/// Throws Error(data) naming the key of scheduler_config.json whose value is not supported.
void check(const SchedulerConfig& config);

/// ᾱ for each training timestep (cumulative products of 1 − beta, with SNR shift and rescaling), in
/// float64 as in the reference. Throws Error(data) as check().
std::vector<double> alpha_bar_table(const SchedulerConfig& config);

/// The timesteps of `steps` steps, descending. With trailing spacing, some numbers of steps (61,
/// 103, 121, …) have one more timestep, -1; the reference does call the model with it. Throws
/// Error(usage) unless 1 ≤ steps ≤ num_train_timesteps, Error(data) as check().
std::vector<std::int64_t> inference_timesteps(const SchedulerConfig& config, int steps);

/// How many of the first timesteps of `steps` steps are left out if a clip begins from a video: the
/// share `strength` of them is computed, rounded down. As get_timesteps of diffusers'
/// CogVideoXVideoToVideoPipeline.
int skipped_steps(int steps, double strength);

/// The timesteps and noise levels of one sampling run.
class NoiseSchedule {
 public:
  /// first: how many of the first timesteps are left out. Throws Error(usage) and Error(data) as
  /// the functions above.
  NoiseSchedule(const SchedulerConfig& config, int steps, int first = 0);

  int steps() const { return steps_; }  ///< as requested
  /// One call of the model for each; may have one more entry than steps().
  const std::vector<std::int64_t>& timesteps() const { return timesteps_; }
  int calls() const { return static_cast<int>(timesteps_.size()); }
  double timestep(int i) const {
    return static_cast<double>(timesteps_.at(static_cast<std::size_t>(i)));
  }

  double alpha_bar(std::int64_t timestep) const;  ///< timestep -1 is the last entry, as in Python
  /// The timestep after step `i`: its own minus a constant stride; negative at the end. Not always
  /// the next entry of timesteps().
  std::int64_t target(int i) const;
  double target_alpha_bar(int i) const;

 private:
  int steps_;
  std::int64_t stride_;
  std::vector<double> alpha_bar_;
  double final_alpha_bar_;
  std::vector<std::int64_t> timesteps_;
};

}  // namespace reelmesh
