#include "models/checkpoints/presets.hpp"

#include "base/error.hpp"

namespace reelmesh {

using nlohmann::json;

namespace {

std::vector<NamedPreset> all_presets() {
  std::vector<NamedPreset> all = cogvideox_presets();
  for (const NamedPreset& preset : opensora_presets()) all.push_back(preset);
  return all;
}

}  // namespace

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

json tiny_text_encoder() {
  json config = released_text_encoder();
  config.update({{"d_ff", 160},
                 {"d_kv", 16},
                 {"d_model", 64},
                 {"num_decoder_layers", 2},
                 {"num_heads", 4},
                 {"num_layers", 2},
                 {"vocab_size", 1120}});
  return config;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const NamedPreset& preset : all_presets()) names.emplace_back(preset.name);
  return names;
}

ModelPreset model_preset(std::string_view name) {
  for (const NamedPreset& known : all_presets()) {
    if (known.name != name) continue;
    ModelPreset preset;
    preset.name = name;
    known.make(preset);
    return preset;
  }
  fail(Status::internal, "no preset '{}'", name);
}

}  // namespace reelmesh
