#pragma once
// Writes a LoRA of a transformer as save_lora_weights of diffusers 0.36 does
// (CogVideoXLoraLoaderMixin): load_lora_weights of diffusers and model.lora read it.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// The matrices that change a module; float32, on the host.
struct LoraMatrices {
  std::string module;  ///< "transformer_blocks.0.attn1.to_q"
  double alpha = 0;    ///< it is changed by alpha / rank · B·A
  Tensor down;         ///< A: [rank, in]
  Tensor up;           ///< B: [out, rank]
};

struct LoraToWrite {
  // Of most modules: those of which a module has others are written with its name.
  std::int64_t rank = 0;
  double alpha = 0;
  std::vector<std::string> targets;  ///< endings of the names of modules: "to_q"
  std::vector<LoraMatrices> modules;
};

/// Writes folder/pytorch_lora_weights.safetensors with the tensors
/// transformer.MODULE.lora_A.weight and lora_B.weight, and ranks, alphas and targets in its
/// metadata. Errors, flushing and renaming as write_safetensors; Error(internal) for other shapes
/// or types.
void write_lora(const std::filesystem::path& folder, const LoraToWrite& lora);

}  // namespace reelmesh
