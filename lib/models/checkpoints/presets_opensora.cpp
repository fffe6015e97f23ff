#include "models/checkpoints/presets.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

// Arguments of Open-Sora's constructors for released models; presets change some values.

json released_transformer(const char* class_name, int text_tokens) {
  return {{"_class_name", class_name}, {"caption_channels", 4096},
          {"class_dropout_prob", 0.1}, {"depth", 28},
          {"hidden_size", 1152},       {"in_channels", 4},
          {"mlp_ratio", 4.0},          {"model_max_length", text_tokens},
          {"num_heads", 16},           {"patch_size", {1, 2, 2}},
          {"pred_sigma", true}};
}

json image_autoencoder() {
  return {{"act_fn", "silu"},
          {"block_out_channels", {128, 256, 512, 512}},
          {"down_block_types", std::vector<std::string>(4, "DownEncoderBlock2D")},
          {"in_channels", 3},
          {"latent_channels", 4},
          {"layers_per_block", 2},
          {"norm_num_groups", 32},
          {"out_channels", 3},
          {"sample_size", 256},
          {"up_block_types", std::vector<std::string>(4, "UpDecoderBlock2D")}};
}

json make_model_index(const ModelPreset& p) {
  return {
      {"_class_name", "OpenSoraPipeline"},
      {"scheduler", {"opensora", p.scheduler["_class_name"]}},
      {"text_encoder", {"transformers", "T5EncoderModel"}},
      {"tokenizer", {"transformers", "T5Tokenizer"}},
      {"transformer", {"opensora", p.transformer["_class_name"]}},
      {"vae",
       {p.vae["_class_name"] == "AutoencoderKL" ? "diffusers" : "opensora", p.vae["_class_name"]}}};
}

// frames: of latents; side: rows and columns of latents; scales: of the position tables.
void as_1_0(ModelPreset& p, int frames, int side, double space_scale, double time_scale) {
  p.dtype = DType::float16;
  p.tokenizer_pieces = 32000;
  p.transformer = released_transformer("STDiT", 120);
  p.transformer.update({{"input_size", {frames, side, side}},
                        {"space_scale", space_scale},
                        {"time_scale", time_scale}});
  p.vae = image_autoencoder();
  p.vae.update({{"_class_name", "AutoencoderKL"}, {"scaling_factor", 0.18215}});
  p.text_encoder = released_text_encoder();
  p.scheduler = {{"_class_name", "IDDPM"}, {"cfg_scale", 7.0}, {"num_sampling_steps", 100}};
  p.model_index = make_model_index(p);
}

void as_1_2(ModelPreset& p) {
  p.dtype = DType::bfloat16;
  p.tokenizer_pieces = 32000;
  p.transformer = released_transformer("STDiT3", 300);
  p.transformer.update(
      {{"input_size", {nullptr, nullptr, nullptr}}, {"input_sq_size", 512}, {"qk_norm", true}});
  p.vae = {{"_class_name", "OpenSoraVAE_V1_2"},
           {"micro_batch_size", 4},
           {"micro_frame_size", 17},
           {"scale", {3.85, 2.32, 2.33, 3.06}},
           {"shift", {-0.10, 0.34, 0.27, 0.98}},
           {"vae_2d", image_autoencoder()},
           {"vae_temporal",
            {{"channel_multipliers", {1, 2, 2, 4}},
             {"embed_dim", 4},
             {"filters", 128},
             {"in_out_channels", 4},
             {"latent_embed_dim", 4},
             {"num_groups", 32},
             {"num_res_blocks", 4},
             {"temporal_downsample", {false, true, true}}}}};
  p.text_encoder = released_text_encoder();
  p.scheduler = {{"_class_name", "RFLOW"},
                 {"cfg_scale", 7.0},
                 {"num_sampling_steps", 30},
                 {"use_timestep_transform", true}};
  p.model_index = make_model_index(p);
}

// Small enough to make 16 frames of 112 x 80 pixels in seconds on one core. Heads (5), token rows
// (7) and token columns (5) do not divide evenly among ranks.
void shrink(ModelPreset& p) {
  p.dtype = DType::float32;
  p.tokenizer_pieces = 1000;
  p.transformer.update({{"caption_channels", 64},
                        {"depth", 2},
                        {"hidden_size", 80},
                        {"model_max_length", 32},
                        {"num_heads", 5}});
  json& image = p.vae.contains("vae_2d") ? p.vae["vae_2d"] : p.vae;
  image.update(
      {{"block_out_channels", {16, 16, 32, 32}}, {"layers_per_block", 1}, {"norm_num_groups", 4}});
  p.text_encoder = tiny_text_encoder();
}

void tiny_1_0(ModelPreset& p) {
  as_1_0(p, 16, 32, 0.5, 1.0);
  shrink(p);
  p.transformer["input_size"] = {16, 14, 10};
  p.scheduler["num_sampling_steps"] = 10;
}

void tiny_1_2(ModelPreset& p) {
  as_1_2(p);
  shrink(p);
  p.vae["vae_temporal"].update({{"channel_multipliers", {1, 1, 2, 2}},
                                {"filters", 8},
                                {"num_groups", 4},
                                {"num_res_blocks", 1}});
  p.scheduler["num_sampling_steps"] = 6;
}

}  // namespace

std::vector<NamedPreset> opensora_presets() {
  return {
      {"tiny-stdit", tiny_1_0},
      {"tiny-stdit3", tiny_1_2},
      {"opensora-1.0-16x256x256", [](ModelPreset& p) { as_1_0(p, 16, 32, 0.5, 1.0); }},
      {"opensora-1.0-16x512x512", [](ModelPreset& p) { as_1_0(p, 16, 64, 1.0, 1.0); }},
      {"opensora-1.0-64x512x512", [](ModelPreset& p) { as_1_0(p, 64, 64, 1.0, 2.0 / 3.0); }},
      {"opensora-1.2", as_1_2},
  };
}

}  // namespace reelmesh
