#pragma once
// Names of tensors in files of LoRAs. Programs write the same matrices under different names:
//
//   transformer.MODULE.lora_A.weight        save_lora_weights of diffusers
//   MODULE.lora_A.weight                    save_lora_adapter of diffusers
//   base_model.model.MODULE.lora_A.weight   PEFT; also lora_A.default.weight, which has the name of
//                                           the adapter
//   diffusion_model.MODULE.lora_A.weight    ComfyUI; also model.diffusion_model.
//   transformer.MODULE.lora.down.weight     diffusers before PEFT; also
//   MODULE.processor.to_q_lora.…
//   lora_unet_MODULE.lora_down.weight       kohya's and musubi's scripts: MODULE has '_' for '.'
//   lora_unet__MODULE.lora_down.weight      VideoX-Fun, likewise
//
// and lora_B (up) likewise; MODULE.lora_B.bias changes the bias; MODULE.alpha is a number. What is
// added as it is: MODULE.diff to the weight, MODULE.diff_b to the bias, BLOCK.diff_m to the table
// of Wan's block. Prefixes may follow one another, also "module." and "unet.", which wrappers of a
// model add. Modules of Wan have the names of diffusers, or those of Wan's own code (names.hpp).
#include <string>
#include <string_view>

namespace reelmesh {

enum class LoraRole {
  down,        ///< A: [rank, in]
  up,          ///< B: [out, rank]
  bias,        ///< a change of the bias
  alpha,       ///< one number
  difference,  ///< of the whole weight
  bias_difference,
  table_difference,
  text_encoder,  ///< anything of a text encoder
  unknown        ///< not of a LoRA
};

struct LoraName {
  LoraRole role = LoraRole::unknown;
  std::string module;  ///< "transformer_blocks.0.attn1.to_q"; of an unknown name all but prefixes
  std::string prefix;  ///< all prefixes: "base_model.model."
  std::string_view ending;   ///< what follows the module: ".lora_A.weight"
  std::string_view writer;   ///< the program that writes such names: "PEFT"
  bool underscored = false;  ///< the module has '_' for '.': "transformer_blocks_0_attn1_to_q"
};

LoraName read_lora_name(std::string_view name);

/// Changes of weights that are no LoRA, or are named for another model.
struct OtherAdapter {
  std::string_view part;    ///< of the name of a tensor, by which it is known
  std::string_view kind;    ///< for people: "LoKr (Kronecker products)"
  std::string_view advice;  ///< what to do
};

/// nullptr for tensors of a LoRA, and for unknown ones.
const OtherAdapter* other_adapter(std::string_view name);

}  // namespace reelmesh
