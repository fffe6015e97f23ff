#pragma once
// Files of LoRA (low-rank adaptation): for a module with the weight W [out, in], a matrix A
// [rank, in] and a matrix B [out, rank] that change it to W + factor · B·A. Names of tensors are
// those of lora_names.hpp. Factors are as in load_lora_weights of diffusers 0.42
// (CogVideoXLoraLoaderMixin) and in PEFT: alpha and ranks are in the file's metadata
// (lora_adapter_metadata of diffusers), in adapter_config.json beside a file of PEFT, or alpha is a
// tensor of the module. Alpha is a module's own rank, so its factor 1, where nothing says otherwise
// (diffusers since PR 14409; 0.36 took the rank of the first module for all). Distilled models come
// as such files too, with differences of whole tensors: weights and biases that are no linear
// layer's, or small.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "weights/model_paths.hpp"
#include "weights/safetensors.hpp"

namespace reelmesh {

constexpr std::int64_t max_lora_rank = 4096;
constexpr double max_lora_alpha = 1e6;  ///< in absolute value
constexpr std::size_t max_loras = 64;   ///< of a model

struct LoraModule {
  // Names of tensors in the file; empty: none. There are both matrices or none.
  std::string down, up;
  std::string bias;
  std::string difference, bias_difference, table_difference;  ///< not multiplied by `factor`
  std::int64_t rank = 0;                                      ///< 0: differences only
  double factor = 1;  ///< of B·A and `bias`, without the scale that the user gives

  /// One of the tensors, by which people find the module.
  const std::string& any() const;
};

class Lora {
 public:
  /// Reads the header, and alphas if there are any. path: the file, or a folder with
  /// pytorch_lora_weights.safetensors or adapter_model.safetensors. Throws Error(no_input) if a
  /// file is missing, Error(data) if it is damaged, a matrix has no counterpart or another rank or
  /// shape, and for other adapters (DoRA, LoHa, LoKr), names of SAT, pickles, and LoRAs of text
  /// encoders only.
  static Lora open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const SafetensorsFile& file() const { return file_; }
  /// By their names without prefixes: "transformer_blocks.0.attn1.to_q", or as key_of() says.
  const std::map<std::string, LoraModule>& modules() const { return modules_; }
  /// The name that modules() has for a module of a transformer: with '_' for '.' in files of kohya.
  std::string key_of(std::string module) const;
  /// How tensors are named, for people: "kohya (lora_unet_MODULE.lora_down.weight)".
  const std::string& names() const { return names_; }
  /// What of the file is not used, for people: modules of text encoders. Empty if all is used.
  std::string left_out() const;
  /// Tensors whose names are not those of a LoRA.
  const std::vector<std::string>& others() const { return others_; }
  /// Where the factors are from, for people: "adapter_config.json", "none given".
  const std::string& source_of_factors() const { return source_; }

 private:
  class Reader;
  explicit Lora(SafetensorsFile file) : file_(std::move(file)) {}

  SafetensorsFile file_;
  std::map<std::string, LoraModule> modules_;
  std::vector<std::string> others_;
  std::string names_, source_;
  bool underscored_ = false;
  std::size_t text_encoder_modules_ = 0;
};

/// Whether the path is a file, or a folder with a LoRA.
bool may_be_lora(const std::filesystem::path& path);

}  // namespace reelmesh
