#pragma once
// The values that a user may set for a clip, each described once. From this table come the options
// of [sample] with their help, the fields of a line of a prompt file and of /requests, the
// attributes of a clip's file, what is compared before a file counts as that clip, and what must be
// equal in a batch.
#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include "sampler/noise_levels.hpp"
#include "sampler/step_cache.hpp"

namespace reelmesh {

/// Settings of one clip; or of a job, for its clips without own ones. Where neither has a value, it
/// is that of the video that a clip is made from, or the default of the model's family.
struct ClipSettings {
  std::optional<std::int64_t> height, width, frames;
  std::optional<double> fps;
  std::optional<int> steps;
  std::optional<double> guidance;
  std::optional<double> guidance_2;
  std::optional<double> strength;
  std::optional<double> flow_shift;
  std::optional<NoiseLevels> noise_levels;
  std::optional<StepCache> cache;
  std::optional<CacheCoefficients> cache_coefficients;
  std::optional<std::uint64_t> seed;
  friend auto operator<=>(const ClipSettings&, const ClipSettings&) = default;
};

/// How the file of a clip shows the value. Either is compared before a file counts as that clip.
enum class ShownAs { shape, attribute };
/// Values of clips that are denoised together.
enum class InBatch { equal, any };
enum class Limit { included, excluded };

/// What values are permitted. Of a type with a text form, those that its read() takes.
template <class Value>
struct Permitted {};
template <class Number>
requires std::is_arithmetic_v<Number>
struct Permitted<Number> {
  Number min, max;
  Limit lower_limit = Limit::included;  ///< whether `min` itself is permitted
};

template <class V>
struct ClipSetting {
  using Value = V;
  const char* option;  ///< that sets it for all clips: "sample.cache-coefficients"
  std::optional<Value> ClipSettings::*value;
  ShownAs shown_as;
  InBatch in_batch;
  Permitted<Value> permitted;
  const char* unit;      ///< of the value, in --help
  const char* help;      ///< {limits} stands for the permitted values
  const char* fallback;  ///< default of the option; null: none

  /// Of the attribute, and of the field of a prompt file: "cache_coefficients".
  std::string name() const {
    std::string name(option);
    name.erase(0, name.find('.') + 1);
    std::ranges::replace(name, '-', '_');
    return name;
  }
};

inline constexpr std::tuple clip_settings{
    ClipSetting<std::int64_t>{"sample.height",
                              &ClipSettings::height,
                              ShownAs::shape,
                              InBatch::equal,
                              {8, 16384},
                              "PIXELS",
                              "{limits} [default: the checkpoint's]",
                              nullptr},
    ClipSetting<std::int64_t>{"sample.width",
                              &ClipSettings::width,
                              ShownAs::shape,
                              InBatch::equal,
                              {8, 16384},
                              "PIXELS",
                              "{limits} [default: the checkpoint's]",
                              nullptr},
    ClipSetting<std::int64_t>{"sample.frames",
                              &ClipSettings::frames,
                              ShownAs::shape,
                              InBatch::equal,
                              {1, 10000},
                              "N",
                              "frames of a clip, {limits} [default: the checkpoint's]",
                              nullptr},
    ClipSetting<double>{"sample.fps",
                        &ClipSettings::fps,
                        ShownAs::attribute,
                        InBatch::equal,
                        {0.01, 1000},
                        "N",
                        "frames per second, {limits} [default: the checkpoint's]",
                        nullptr},
    // The released schedules have 1000 timesteps; more steps would repeat some.
    ClipSetting<int>{"sample.steps",
                     &ClipSettings::steps,
                     ShownAs::attribute,
                     InBatch::equal,
                     {1, 1000},
                     "N",
                     "denoising steps, {limits} [default: the model family's]",
                     nullptr},
    ClipSetting<double>{"sample.guidance",
                        &ClipSettings::guidance,
                        ShownAs::attribute,
                        InBatch::equal,
                        {0, 1000},
                        "SCALE",
                        "classifier-free guidance scale, {limits}; up to 1 there is no guidance "
                        "and the negative prompt is not used [default: the model family's]",
                        nullptr},
    ClipSetting<double>{"sample.guidance-2",
                        &ClipSettings::guidance_2,
                        ShownAs::attribute,
                        InBatch::equal,
                        {0, 1000},
                        "SCALE",
                        "the same of the second transformer, of models of two (Wan 2.2 A14B), "
                        "{limits}; there is guidance if sample.guidance says so [default: "
                        "sample.guidance]",
                        nullptr},
    ClipSetting<double>{"sample.strength",
                        &ClipSettings::strength,
                        ShownAs::attribute,
                        InBatch::equal,
                        {0, 1, Limit::excluded},
                        "SHARE",
                        "with prompt.video: the share of the steps that is computed, from noise of "
                        "that level on; {limits} [default: 0.8]",
                        nullptr},
    ClipSetting<double>{"sample.flow-shift",
                        &ClipSettings::flow_shift,
                        ShownAs::attribute,
                        InBatch::equal,
                        {0, 1000, Limit::excluded},
                        "SHIFT",
                        "Wan: moves the noise levels of the steps towards the noise, {limits}; "
                        "larger videos need more [default: the checkpoint's]",
                        nullptr},
    ClipSetting<NoiseLevels>{"sample.noise-levels",
                             &ClipSettings::noise_levels,
                             ShownAs::attribute,
                             InBatch::equal,
                             {},
                             "L1,L2,...",
                             "Wan with sample.scheduler = euler: the noise levels of the steps "
                             "before the shift, for distilled models, which make clips in those "
                             "only; {limits} [default: sample.steps of the sampler's]",
                             nullptr},
    ClipSetting<StepCache>{"sample.cache",
                           &ClipSettings::cache,
                           ShownAs::attribute,
                           InBatch::equal,
                           {},
                           "RULE",
                           "which steps are computed; the others add again what the transformer's "
                           "blocks added in the last computed step. {limits}. Thresholds of "
                           "0.1 to 0.3 are usual [default: none]",
                           nullptr},
    ClipSetting<CacheCoefficients>{"sample.cache-coefficients",
                                   &ClipSettings::cache_coefficients,
                                   ShownAs::attribute,
                                   InBatch::equal,
                                   {},
                                   "C4,C3,C2,C1,C0",
                                   "of teacache: {limits} [default: those of the released "
                                   "checkpoints]",
                                   nullptr},
    ClipSetting<std::uint64_t>{"sample.seed",
                               &ClipSettings::seed,
                               ShownAs::attribute,
                               InBatch::any,
                               {0, std::numeric_limits<std::uint64_t>::max()},
                               "N",
                               "seed of the initial noise; clip i uses seed + i",
                               "42"},
};

/// Calls visit(setting) for each.
template <class Visit>
constexpr void for_each_clip_setting(Visit&& visit) {
  std::apply([&](const auto&... setting) { (visit(setting), ...); }, clip_settings);
}

/// The description of a setting.
template <class Value>
constexpr const ClipSetting<Value>& setting_description(std::optional<Value> ClipSettings::*value) {
  const ClipSetting<Value>* found = nullptr;
  for_each_clip_setting([&](const auto& setting) {
    if constexpr (std::is_same_v<decltype(setting), const ClipSetting<Value>&>) {
      if (setting.value == value) found = &setting;
    }
  });
  return *found;
}

namespace detail {

// Stands for a value of any member.
struct AnyOptional {
  template <class Value>
  operator std::optional<Value>() const;
};

// How many values the braces of ClipSettings take.
template <class... Values>
constexpr std::size_t clip_setting_members() {
  if constexpr (requires { ClipSettings{Values{}..., AnyOptional{}}; }) {
    return clip_setting_members<Values..., AnyOptional>();
  } else {
    return sizeof...(Values);
  }
}

// The member of how many descriptions this is.
template <class Value>
constexpr int descriptions_of(std::optional<Value> ClipSettings::*value) {
  int count = 0;
  for_each_clip_setting([&](const auto& setting) {
    if constexpr (std::is_same_v<decltype(setting), const ClipSetting<Value>&>) {
      count += setting.value == value ? 1 : 0;
    }
  });
  return count;
}

}  // namespace detail

static_assert(detail::clip_setting_members() == std::tuple_size_v<decltype(clip_settings)>,
              "a setting of a clip is not described in clip_settings");
static_assert(std::apply(
                  [](const auto&... setting) {
                    return ((detail::descriptions_of(setting.value) == 1) && ...);
                  },
                  clip_settings),
              "a setting of a clip is described twice in clip_settings");

/// Each setting from `first`, or from `second` where that has none.
inline ClipSettings completed(ClipSettings first, const ClipSettings& second) {
  for_each_clip_setting([&](const auto& setting) {
    auto& value = first.*setting.value;
    if (!value) value = second.*setting.value;
  });
  return first;
}

/// The settings that clips of a batch have in common.
inline ClipSettings common_in_batch(ClipSettings settings) {
  for_each_clip_setting([&](const auto& setting) {
    if (setting.in_batch == InBatch::any) (settings.*setting.value).reset();
  });
  return settings;
}

}  // namespace reelmesh
