#include "models/checkpoints/presets.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

// The configurations of CogVideoX-2b; other presets change some values.

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

json make_model_index(const json& transformer, const json& vae, const json& scheduler) {
  const bool from_image = transformer["in_channels"] != transformer["out_channels"];
  return {{"_class_name", from_image ? "CogVideoXImageToVideoPipeline" : "CogVideoXPipeline"},
          {"scheduler", {"diffusers", scheduler["_class_name"]}},
          {"text_encoder", {"transformers", "T5EncoderModel"}},
          {"tokenizer", {"transformers", "T5Tokenizer"}},
          {"transformer", {"diffusers", transformer["_class_name"]}},
          {"vae", {"diffusers", vae["_class_name"]}}};
}

void as_2b(ModelPreset& p) {
  p.dtype = DType::float16;
  p.tokenizer_pieces = 32000;
  p.transformer = released_transformer();
  p.vae = released_vae();
  p.text_encoder = released_text_encoder();
  p.scheduler = released_scheduler();
}

void as_5b(ModelPreset& p) {
  as_2b(p);
  p.dtype = DType::bfloat16;
  p.transformer.update({{"num_attention_heads", 48},
                        {"num_layers", 42},
                        {"use_rotary_positional_embeddings", true}});
  p.vae["scaling_factor"] = 0.7;
  p.scheduler["snr_shift_scale"] = 1.0;
}

void as_1_5(ModelPreset& p) {
  as_5b(p);
  p.transformer.update({{"patch_bias", false},
                        {"patch_size_t", 2},
                        {"sample_frames", 81},
                        {"sample_height", 300},
                        {"sample_width", 300},
                        {"use_learned_positional_embeddings", false}});
  p.vae["invert_scale_latents"] = true;
}

void as_5b_i2v(ModelPreset& p) {
  as_5b(p);
  p.transformer.update({{"in_channels", 32}, {"use_learned_positional_embeddings", true}});
}

void as_1_5_i2v(ModelPreset& p) {
  as_1_5(p);
  p.transformer.update({{"in_channels", 32}, {"ofs_embed_dim", 512}});
}

// Small enough to make a clip of 64 × 96 pixels in seconds on one core, but with several heads,
// layers, groups and latent frames. dpm: stochastic steps, for releases whose authors recommend
// them.
void shrink(ModelPreset& p, bool dpm, int frames) {
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
  if (p.transformer.contains("ofs_embed_dim")) p.transformer["ofs_embed_dim"] = 64;
  p.vae.update({{"block_out_channels", {16, 16, 32, 32}},
                {"layers_per_block", 1},
                {"norm_num_groups", 4},
                {"sample_height", 64},
                {"sample_width", 96}});
  p.text_encoder = tiny_text_encoder();
  if (dpm) p.scheduler["_class_name"] = "CogVideoXDPMScheduler";
}

void index(ModelPreset& p) { p.model_index = make_model_index(p.transformer, p.vae, p.scheduler); }

}  // namespace

std::vector<NamedPreset> cogvideox_presets() {
  return {
      {"tiny-cogvideox", [](ModelPreset& p) { as_2b(p), shrink(p, false, 9), index(p); }},
      {"tiny-cogvideox-rotary", [](ModelPreset& p) { as_5b(p), shrink(p, true, 9), index(p); }},
      {"tiny-cogvideox-1.5", [](ModelPreset& p) { as_1_5(p), shrink(p, true, 17), index(p); }},
      {"tiny-cogvideox-i2v", [](ModelPreset& p) { as_5b_i2v(p), shrink(p, true, 9), index(p); }},
      {"tiny-cogvideox-1.5-i2v",
       [](ModelPreset& p) { as_1_5_i2v(p), shrink(p, true, 17), index(p); }},
      {"cogvideox-2b", [](ModelPreset& p) { as_2b(p), index(p); }},
      {"cogvideox-5b", [](ModelPreset& p) { as_5b(p), index(p); }},
      {"cogvideox-1.5-5b", [](ModelPreset& p) { as_1_5(p), index(p); }},
      {"cogvideox-5b-i2v", [](ModelPreset& p) { as_5b_i2v(p), index(p); }},
      {"cogvideox-1.5-5b-i2v", [](ModelPreset& p) { as_1_5_i2v(p), index(p); }},
  };
}

}  // namespace reelmesh
