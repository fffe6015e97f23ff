#include "weights/lora_writer.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "weights/writer.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;

constexpr const char* prefix = "transformer.";

json number(double alpha) {
  return alpha == std::floor(alpha) ? json(static_cast<std::int64_t>(alpha)) : json(alpha);
}

// LoraConfig of PEFT as the file's metadata has it: a JSON object whose keys have the prefix. Only
// keys that all releases of PEFT know which diffusers 0.36 can use: readers give all to LoraConfig.
// Patterns have whole names, since PEFT takes the first that fits and JSON objects have no order.
std::string adapter_metadata(const LoraToWrite& lora) {
  json ranks = json::object(), alphas = json::object();
  for (const LoraMatrices& matrices : lora.modules) {
    const std::int64_t rank = matrices.down.shape(0);
    if (rank != lora.rank) ranks[matrices.module] = rank;
    if (matrices.alpha != lora.alpha) alphas[matrices.module] = number(matrices.alpha);
  }
  const json config = {{"peft_type", "LORA"},
                       {"r", lora.rank},
                       {"lora_alpha", number(lora.alpha)},
                       {"target_modules", lora.targets},
                       {"lora_dropout", 0.0},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"inference_mode", false},
                       {"init_lora_weights", true},
                       {"use_rslora", false},
                       {"use_dora", false},
                       {"rank_pattern", ranks},
                       {"alpha_pattern", alphas},
                       {"modules_to_save", nullptr},
                       {"layers_to_transform", nullptr},
                       {"layers_pattern", nullptr},
                       {"base_model_name_or_path", nullptr},
                       {"revision", nullptr},
                       {"task_type", nullptr}};
  json with_prefix = json::object();
  for (const auto& [key, value] : config.items()) with_prefix[prefix + key] = value;
  return with_prefix.dump(2);
}

void check(const LoraMatrices& matrices) {
  const Tensor &down = matrices.down, &up = matrices.up;
  expect(down.dtype() == DType::float32 && up.dtype() == DType::float32 &&
             down.shape().size() == 2 && up.shape().size() == 2 && down.shape(0) == up.shape(1),
         "module {} has A {} and B {}, expected [rank, in] and [out, rank] in float32",
         matrices.module, to_string(down.shape()), to_string(up.shape()));
}

}  // namespace

void write_lora(const std::filesystem::path& folder, const LoraToWrite& lora) {
  std::vector<TensorToWrite> tensors;
  std::vector<const Tensor*> values;
  for (const LoraMatrices& matrices : lora.modules) {
    check(matrices);
    for (const auto& [name, tensor] :
         {std::pair("lora_A", &matrices.down), std::pair("lora_B", &matrices.up)}) {
      tensors.push_back({fmt::format("{}{}.{}.weight", prefix, matrices.module, name),
                         DType::float32, tensor->shape()});
      values.push_back(tensor);
    }
  }
  const auto fill = [&](std::size_t index, Tensor& out) {
    std::memcpy(out.raw(), values[index]->raw(), static_cast<std::size_t>(out.bytes()));
  };
  write_safetensors(folder, "pytorch_lora_weights", tensors, fill,
                    std::numeric_limits<std::int64_t>::max(), Flush::yes,
                    {{"lora_adapter_metadata", adapter_metadata(lora)}});
}

}  // namespace reelmesh
