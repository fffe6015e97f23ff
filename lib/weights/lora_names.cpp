#include "weights/lora_names.hpp"

#include <algorithm>
#include <array>

namespace reelmesh {
namespace {

enum class Modules { dotted, underscored, text_encoder };

struct Prefix {
  std::string_view text;
  std::string_view writer;  ///< empty: any
  Modules modules = Modules::dotted;
};

// A prefix comes before those that it begins with.
constexpr std::array<Prefix, 15> prefixes{
    {{"transformer.", "diffusers"},
     {"base_model.model.", "PEFT"},
     {"diffusion_model.", "ComfyUI"},
     {"model.diffusion_model.", "ComfyUI"},
     {"module.", ""},
     {"unet.", ""},
     {"lora_unet__", "VideoX-Fun", Modules::underscored},
     {"lora_unet_", "kohya", Modules::underscored},
     {"lora_transformer__", "VideoX-Fun", Modules::underscored},
     {"lora_transformer_", "kohya", Modules::underscored},
     {"text_encoder", "", Modules::text_encoder},  // also text_encoder_2, text_encoders
     {"lora_te_", "", Modules::text_encoder},
     {"lora_te1_", "", Modules::text_encoder},
     {"lora_te2_", "", Modules::text_encoder},
     {"lora_te3_", "", Modules::text_encoder}}};

struct Ending {
  std::string_view text;
  LoraRole role;
  std::string_view replacement = "";  ///< what of it belongs to the module
};

// More specific ones first.
constexpr std::array<Ending, 22> endings{{{".lora_A.weight", LoraRole::down},
                                          {".lora_B.weight", LoraRole::up},
                                          {".lora_B.bias", LoraRole::bias},
                                          {".lora_A.default.weight", LoraRole::down},
                                          {".lora_B.default.weight", LoraRole::up},
                                          {".lora_B.default.bias", LoraRole::bias},
                                          {".lora_down.weight", LoraRole::down},
                                          {".lora_up.weight", LoraRole::up},
                                          {".to_q_lora.down.weight", LoraRole::down, ".to_q"},
                                          {".to_q_lora.up.weight", LoraRole::up, ".to_q"},
                                          {".to_k_lora.down.weight", LoraRole::down, ".to_k"},
                                          {".to_k_lora.up.weight", LoraRole::up, ".to_k"},
                                          {".to_v_lora.down.weight", LoraRole::down, ".to_v"},
                                          {".to_v_lora.up.weight", LoraRole::up, ".to_v"},
                                          {".to_out_lora.down.weight", LoraRole::down, ".to_out.0"},
                                          {".to_out_lora.up.weight", LoraRole::up, ".to_out.0"},
                                          {".lora.down.weight", LoraRole::down},
                                          {".lora.up.weight", LoraRole::up},
                                          {".alpha", LoraRole::alpha},
                                          {".diff", LoraRole::difference},
                                          {".diff_b", LoraRole::bias_difference},
                                          {".diff_m", LoraRole::table_difference}}};

constexpr std::string_view how_to_merge =
    "merge it into the transformer with the program that made it, and give that folder as "
    "model.transformer";
constexpr std::string_view how_to_convert =
    "convert it with tools/export_sat_lora_weight.py of the CogVideo repository";

constexpr std::array<OtherAdapter, 6> other_adapters{
    {{".hada_", "LoHa (Hadamard products)", how_to_merge},
     {".lokr_", "LoKr (Kronecker products)", how_to_merge},
     {"dora_scale", "DoRA (with magnitudes)", how_to_merge},
     {"lora_magnitude_vector", "DoRA (with magnitudes)", how_to_merge},
     {".matrix_A", "SAT (CogVideo's first training code)", how_to_convert},
     {".matrix_B", "SAT (CogVideo's first training code)", how_to_convert}}};

}  // namespace

LoraName read_lora_name(std::string_view name) {
  LoraName found;
  const auto begins = [&](const Prefix& prefix) { return name.starts_with(prefix.text); };
  bool text_encoder = false;
  for (auto prefix = std::ranges::find_if(prefixes, begins); prefix != prefixes.end();
       prefix = std::ranges::find_if(prefixes, begins)) {
    found.prefix += prefix->text;
    name.remove_prefix(prefix->text.size());
    if (found.writer.empty()) found.writer = prefix->writer;
    found.underscored = found.underscored || prefix->modules == Modules::underscored;
    text_encoder = text_encoder || prefix->modules == Modules::text_encoder;
  }
  if (found.writer.empty()) found.writer = "diffusers";
  found.module = name;
  constexpr std::string_view processor = ".processor.";
  if (const auto at = found.module.find(processor); at != std::string::npos) {
    found.module.erase(at, processor.size() - 1);
  }
  const auto ends = [&](const Ending& ending) {
    return found.module.ends_with(ending.text) && found.module.size() > ending.text.size();
  };
  if (const auto ending = std::ranges::find_if(endings, ends); ending != endings.end()) {
    found.module.resize(found.module.size() - ending->text.size());
    found.module += ending->replacement;
    found.role = ending->role;
    found.ending = ending->text;
  }
  if (text_encoder) found.role = LoraRole::text_encoder;
  return found;
}

const OtherAdapter* other_adapter(std::string_view name) {
  const auto is_of = [&](const OtherAdapter& other) {
    return name.find(other.part) != std::string_view::npos;
  };
  const auto found = std::ranges::find_if(other_adapters, is_of);
  return found == other_adapters.end() ? nullptr : &*found;
}

}  // namespace reelmesh
