#pragma once
// The configuration of Open-Sora's transformers: transformer/config.json with the constructor
// arguments of STDiT (release 1.0) or STDiT3 (release 1.2).
#include <optional>

#include "ops/pointwise.hpp"
#include "sampler/step_cache.hpp"
#include "weights/checkpoint.hpp"
#include "weights/config.hpp"

namespace reelmesh {

struct STDiTConfig {
  /// v1: STDiT, whose temporal attention has neither norm nor modulation; v3: STDiT3, with complete
  /// temporal blocks and rotary positions along time.
  enum class Kind { v1, v3 };
  /// Guidance branches: 0 unconditional, 1 the prompt.
  static constexpr std::int64_t branches = 2;

  Kind kind = Kind::v1;
  std::int64_t heads = 16;
  std::int64_t hidden = 1152;  ///< channels
  std::int64_t layers = 28;    ///< pairs of spatial and temporal attention
  std::int64_t mlp_hidden = 4608;
  std::int64_t in_channels = 4;
  std::int64_t text_channels = 4096;
  std::int64_t max_text_tokens = 120;
  ops::Patch patch;
  double space_scale = 1, time_scale = 1;  ///< of v1's position tables
  std::int64_t input_sq_size = 512;        ///< v3: side in pixels at which positions are not scaled
  /// v1: latents [frame, row, column] that it was trained for; the default size of clips.
  Shape input_size{16, 32, 32};

  std::int64_t head_channels() const { return hidden / heads; }
  /// v1: noise, then variance; v3: velocity, then unused channels.
  std::int64_t out_channels() const { return 2 * in_channels; }
  std::int64_t patch_features() const { return in_channels * patch.rows * patch.columns; }

  /// Reads transformer/config.json. Throws Error(data) for unsupported configurations.
  static STDiTConfig read(const Config& config);
};

/// The coefficients of TeaCache that are known for a checkpoint's geometry: those of 1.2.
/// Source: ali-vilab/TeaCache at 7c10efc, eval/teacache/experiments/opensora.py.
std::optional<CacheCoefficients> known_cache_coefficients(const STDiTConfig& config);

}  // namespace reelmesh
