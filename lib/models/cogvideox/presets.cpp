#include "models/cogvideox/presets.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

// What the released models have in common; a preset changes single values.

json released_transformer() {
  return {{"_class_name", "CogVideoXTransformer3DModel"},
          {"activation_fn", "gelu-approximate"},
          {"attention_bias", true},
          {"attention_head_dim", 64},
          {"dropout", 0.0},
          {"flip_sin_to_cos", true},
          {"freq_shift", 0},
          {"in_channels", 16},
          {"max_text_seq_length", 226},
          {"norm_elementwise_affine", true},
          {"norm_eps", 1e-05},
          {"num_attention_heads", 30},
          {"num_layers", 30},
          {"out_channels", 16},
          {"patch_size", 2},
          {"sample_frames", 49},
          {"sample_height", 60},
          {"sample_width", 90},
          {"spatial_interpolation_scale", 1.875},
          {"temporal_compression_ratio", 4},
          {"temporal_interpolation_scale", 1.0},
          {"text_embed_dim", 4096},
          {"time_embed_dim", 512},
          {"timestep_activation_fn", "silu"},
          {"use_rotary_positional_embeddings", false}};
}

json released_vae() {
  return {{"_class_name", "AutoencoderKLCogVideoX"},
          {"act_fn", "silu"},
          {"block_out_channels", {128, 256, 256, 512}},
          {"down_block_types", std::vector<std::string>(4, "CogVideoXDownBlock3D")},
          {"force_upcast", true},
          {"in_channels", 3},
          {"latent_channels", 16},
          {"latents_mean", nullptr},
          {"latents_std", nullptr},
          {"layers_per_block", 3},
          {"norm_eps", 1e-06},
          {"norm_num_groups", 32},
          {"out_channels", 3},
          {"sample_height", 480},
          {"sample_width", 720},
          {"scaling_factor", 1.15258426},
          {"shift_factor", nullptr},
          {"temporal_compression_ratio", 4},
          {"up_block_types", std::vector<std::string>(4, "CogVideoXUpBlock3D")},
          {"use_post_quant_conv", false},
          {"use_quant_conv", false}};
}

json released_text_encoder() {
  return {{"architectures", json::array({"T5EncoderModel"})},
          {"classifier_dropout", 0.0},
          {"d_ff", 10240},
          {"d_kv", 64},
          {"d_model", 4096},
          {"decoder_start_token_id", 0},
          {"dense_act_fn", "gelu_new"},
          {"dropout_rate", 0.1},
          {"eos_token_id", 1},
          {"feed_forward_proj", "gated-gelu"},
          {"initializer_factor", 1.0},
          {"is_encoder_decoder", true},
          {"is_gated_act", true},
          {"layer_norm_epsilon", 1e-06},
          {"model_type", "t5"},
          {"num_decoder_layers", 24},
          {"num_heads", 64},
          {"num_layers", 24},
          {"output_past", true},
          {"pad_token_id", 0},
          {"relative_attention_max_distance", 128},
          {"relative_attention_num_buckets", 32},
          {"tie_word_embeddings", false},
          {"use_cache", true},
          {"vocab_size", 32128}};
}

json released_scheduler() {
  return {{"_class_name", "CogVideoXDDIMScheduler"},
          {"beta_end", 0.012},
          {"beta_schedule", "scaled_linear"},
          {"beta_start", 0.00085},
          {"clip_sample", false},
          {"clip_sample_range", 1.0},
          {"num_train_timesteps", 1000},
          {"prediction_type", "v_prediction"},
          {"rescale_betas_zero_snr", true},
          {"sample_max_value", 1.0},
          {"set_alpha_to_one", true},
          {"snr_shift_scale", 3.0},
          {"steps_offset", 0},
          {"timestep_spacing", "trailing"},
          {"trained_betas", nullptr}};
}

json index_of(const json& transformer, const json& vae, const json& scheduler) {
  return {{"_class_name", "CogVideoXPipeline"},
          {"scheduler", {"diffusers", scheduler["_class_name"]}},
          {"text_encoder", {"transformers", "T5EncoderModel"}},
          {"tokenizer", {"transformers", "T5Tokenizer"}},
          {"transformer", {"diffusers", transformer["_class_name"]}},
          {"vae", {"diffusers", vae["_class_name"]}}};
}

void as_2b(CogVideoXPreset& p) {
  p.dtype = DType::float16;
  p.tokenizer_pieces = 32000;
  p.transformer = released_transformer();
  p.vae = released_vae();
  p.text_encoder = released_text_encoder();
  p.scheduler = released_scheduler();
}

void as_5b(CogVideoXPreset& p) {
  as_2b(p);
  p.dtype = DType::bfloat16;
  p.transformer.update({{"num_attention_heads", 48},
                        {"num_layers", 42},
                        {"use_rotary_positional_embeddings", true}});
  p.vae["scaling_factor"] = 0.7;
  p.scheduler["snr_shift_scale"] = 1.0;
}

void as_1_5(CogVideoXPreset& p) {
  as_5b(p);
  p.transformer.update({{"patch_bias", false},
                        {"patch_size_t", 2},
                        {"sample_frames", 81},
                        {"sample_height", 300},
                        {"sample_width", 300},
                        {"use_learned_positional_embeddings", false}});
  p.vae["invert_scale_latents"] = true;
}

// Small enough for a clip of 64 × 96 pixels in seconds on one core, with more than one of
// everything: heads, layers, groups, latent frames. Stochastic steps where the release's authors
// advise them.
void shrink(CogVideoXPreset& p, bool dpm, int frames) {
  p.dtype = DType::float32;
  p.tokenizer_pieces = 1000;
  p.transformer.update({{"attention_head_dim", 16},
                        {"max_text_seq_length", 32},
                        {"num_attention_heads", 6},
                        {"num_layers", 2},
                        {"sample_frames", frames},
                        {"sample_height", 8},
                        {"sample_width", 12},
                        {"text_embed_dim", 64},
                        {"time_embed_dim", 64}});
  p.vae.update({{"block_out_channels", {16, 16, 32, 32}},
                {"layers_per_block", 1},
                {"norm_num_groups", 4},
                {"sample_height", 64},
                {"sample_width", 96}});
  p.text_encoder.update({{"d_ff", 160},
                         {"d_kv", 16},
                         {"d_model", 64},
                         {"num_decoder_layers", 2},
                         {"num_heads", 4},
                         {"num_layers", 2},
                         {"vocab_size", 1120}});
  if (dpm) p.scheduler["_class_name"] = "CogVideoXDPMScheduler";
}

struct Named {
  const char* name;
  void (*make)(CogVideoXPreset&);
};
constexpr std::array<Named, 6> presets{{
    {"tiny-cogvideox", [](CogVideoXPreset& p) { as_2b(p), shrink(p, false, 9); }},
    {"tiny-cogvideox-rotary", [](CogVideoXPreset& p) { as_5b(p), shrink(p, true, 9); }},
    {"tiny-cogvideox-1.5", [](CogVideoXPreset& p) { as_1_5(p), shrink(p, true, 17); }},
    {"cogvideox-2b", as_2b},
    {"cogvideox-5b", as_5b},
    {"cogvideox-1.5-5b", as_1_5},
}};

}  // namespace

std::vector<std::string> cogvideox_preset_names() {
  std::vector<std::string> names;
  for (const Named& preset : presets) names.emplace_back(preset.name);
  return names;
}

CogVideoXPreset cogvideox_preset(std::string_view name) {
  const auto* found =
      std::find_if(presets.begin(), presets.end(), [&](const Named& p) { return p.name == name; });
  expect(found != presets.end(), "no preset '{}'", name);
  CogVideoXPreset preset;
  preset.name = name;
  found->make(preset);
  preset.model_index = index_of(preset.transformer, preset.vae, preset.scheduler);
  return preset;
}

}  // namespace reelmesh
