#include "weights/lora.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "weights/json.hpp"
#include "weights/lora_config.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

constexpr const char* metadata_key = "lora_adapter_metadata";
constexpr const char* peft_config = "adapter_config.json";
constexpr std::array<std::string_view, 2> prefixes{"transformer.", "base_model.model."};

enum class Kind { down, up, bias, alpha };

struct Ending {
  std::string_view text;         ///< of a tensor's name
  std::string_view replacement;  ///< what of it belongs to the module
  Kind kind;
};

// More specific ones first.
constexpr std::array<Ending, 14> endings{{{".lora_A.weight", "", Kind::down},
                                          {".lora_B.weight", "", Kind::up},
                                          {".lora_B.bias", "", Kind::bias},
                                          {".to_q_lora.down.weight", ".to_q", Kind::down},
                                          {".to_q_lora.up.weight", ".to_q", Kind::up},
                                          {".to_k_lora.down.weight", ".to_k", Kind::down},
                                          {".to_k_lora.up.weight", ".to_k", Kind::up},
                                          {".to_v_lora.down.weight", ".to_v", Kind::down},
                                          {".to_v_lora.up.weight", ".to_v", Kind::up},
                                          {".to_out_lora.down.weight", ".to_out.0", Kind::down},
                                          {".to_out_lora.up.weight", ".to_out.0", Kind::up},
                                          {".lora.down.weight", "", Kind::down},
                                          {".lora.up.weight", "", Kind::up},
                                          {".alpha", "", Kind::alpha}}};

struct LoraTensor {
  std::string module;
  Kind kind;
};

std::optional<LoraTensor> lora_tensor(const std::string& name) {
  std::string rest = without_lora_prefix(name);
  constexpr std::string_view processor = ".processor.";
  if (const auto at = rest.find(processor); at != std::string::npos) {
    rest.erase(at, processor.size() - 1);
  }
  for (const Ending& ending : endings) {
    if (!rest.ends_with(ending.text)) continue;
    rest.resize(rest.size() - ending.text.size());
    if (rest.empty()) return std::nullopt;
    return LoraTensor{rest + std::string(ending.replacement), ending.kind};
  }
  return std::nullopt;
}

std::string_view lora_prefix(const std::string& name) {
  for (const std::string_view prefix : prefixes) {
    if (name.starts_with(prefix)) return prefix;
  }
  return "";
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

/// The file in a folder, as diffusers and PEFT call it; the path itself if it is none.
std::optional<fs::path> file_in(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {"pytorch_lora_weights.safetensors", "adapter_model.safetensors"}) {
    if (is_file(path / name)) return path / name;
  }
  return std::nullopt;
}

fs::path needed_file_in(const fs::path& path) {
  if (const auto file = file_in(path)) return *file;
  fail(Status::no_input,
       "{}: found neither pytorch_lora_weights.safetensors nor adapter_model.safetensors",
       path.string());
}

}  // namespace

bool may_be_lora(const fs::path& path) {
  const auto file = file_in(path);
  return file && is_file(*file);
}

std::string without_lora_prefix(const std::string& name) {
  return name.substr(lora_prefix(name).size());
}

class Lora::Reader {
 public:
  explicit Reader(Lora& lora) : lora_(lora) {}

  void read() {
    for (const auto& [name, info] : lora_.file_.tensors()) add(name, info);
    for (auto& [name, module] : lora_.modules_) check_pair(name, module);
    require(
        !lora_.modules_.empty(), Status::data,
        "{}: no tensor of a LoRA{}, expected names such as "
        "'transformer.transformer_blocks.0.attn1.to_q.lora_A.weight'",
        where(),
        lora_.others_.empty() ? "" : fmt::format(" (there is '{}')", printable(lora_.others_[0])));
    set_factors();
  }

 private:
  std::string where() const { return lora_.path().string(); }
  const TensorInfo& tensor_info(const std::string& name) const {
    return lora_.file_.tensors().at(name);
  }

  void add(const std::string& name, const TensorInfo& info) {
    require(!name.starts_with("text_encoder"), Status::data,
            "{}: tensor '{}' belongs to a text encoder, expected a LoRA of the transformer only",
            where(), printable(name));
    require(name.find("lora_magnitude_vector") == std::string::npos &&
                name.find("dora_scale") == std::string::npos,
            Status::data, "{}: tensor '{}' belongs to DoRA, which is not supported", where(),
            printable(name));
    const std::optional<LoraTensor> tensor = lora_tensor(name);
    if (!tensor) {
      lora_.others_.push_back(name);
      return;
    }
    require(loadable(info.dtype).has_value(), Status::data,
            "{}: tensor '{}' holds {}, expected F32, F16 or BF16", where(), printable(name),
            info.dtype);
    const std::string_view prefix = lora_prefix(name);
    if (!prefix_) prefix_ = prefix;
    require(*prefix_ == prefix, Status::data,
            "{}: tensor '{}' begins with '{}', others with '{}', expected the same for all",
            where(), printable(name), prefix, *prefix_);
    LoraModule& module = lora_.modules_[tensor->module];
    std::string* known = nullptr;
    switch (tensor->kind) {
      case Kind::down:
        known = &module.down;
        break;
      case Kind::up:
        known = &module.up;
        break;
      case Kind::bias:
        known = &module.bias;
        break;
      case Kind::alpha:
        known = &alphas_[tensor->module];
        break;
    }
    require(known->empty(), Status::data, "{}: tensors '{}' and '{}' are the same part of a LoRA",
            where(), printable(*known), printable(name));
    *known = name;
  }

  void check_pair(const std::string& name, LoraModule& module) {
    if (module.down.empty() || module.up.empty()) {
      const std::string& found = !module.down.empty()   ? module.down
                                 : !module.up.empty()   ? module.up
                                 : !module.bias.empty() ? module.bias
                                                        : alphas_[name];
      fail(Status::data, "{}: tensor '{}' without the {} of module '{}'", where(), printable(found),
           module.down.empty() ? "lora_A (down)" : "lora_B (up)", printable(name));
    }
    const Shape &down = tensor_info(module.down).shape, &up = tensor_info(module.up).shape;
    const std::int64_t rank = down.size() < 2 ? 0 : down[0];
    require(rank >= 1 && rank <= max_lora_rank, Status::data,
            "{}: tensor '{}' has shape {}, expected a rank of 1 to {} and more axes", where(),
            printable(module.down), to_string(down), max_lora_rank);
    require(up.size() >= 2 && up[1] == rank && numel(up) == up[0] * rank, Status::data,
            "{}: tensor '{}' has shape {}, expected [out, {}] as '{}' has rank {}", where(),
            printable(module.up), to_string(up), rank, printable(module.down), rank);
    if (!module.bias.empty()) {
      const Shape& bias = tensor_info(module.bias).shape;
      require(bias == Shape{up[0]}, Status::data, "{}: tensor '{}' has shape {}, expected [{}]",
              where(), printable(module.bias), to_string(bias), up[0]);
    }
    module.rank = rank;
  }

  // The config that belongs to the file; none if it has none.
  std::optional<LoraConfig> config() {
    if (*prefix_ == "base_model.model.") {
      const fs::path file = lora_.path().parent_path() / peft_config;
      const bool needed = alphas_.size() < lora_.modules_.size();
      if (!needed && !is_file(file)) return std::nullopt;
      require(is_file(file), Status::no_input,
              "{}: not found, expected beside {}: it holds lora_alpha of a LoRA saved by PEFT, "
              "which has no tensor alpha for each module",
              file.string(), lora_.path().filename().string());
      constexpr std::int64_t max_bytes = std::int64_t{16} << 20;
      lora_.source_ = peft_config;
      return LoraConfig::read(Config::parse(read_text(file, max_bytes), file));
    }
    const auto found = lora_.file_.metadata().find(metadata_key);
    if (found == lora_.file_.metadata().end()) return std::nullopt;
    const Config metadata =
        Config::parse(found->second, fmt::format("{}: {}", where(), metadata_key));
    const std::string prefix(*prefix_);
    if (!metadata.has(prefix + "r")) return std::nullopt;  // of other models
    lora_.source_ = metadata_key;
    return LoraConfig::read(metadata, prefix);
  }

  void set_factors() {
    if (const std::optional<LoraConfig> known = config()) {
      require(alphas_.empty(), Status::data, "{}: tensor '{}' and {}: alpha is given twice",
              where(), alphas_.empty() ? "" : printable(alphas_.begin()->second), lora_.source_);
      for (auto& [name, module] : lora_.modules_) {
        require(known->rank(name) == module.rank, Status::data,
                "{}: module '{}' has rank {}, but {} says {}", where(), printable(name),
                module.rank, lora_.source_, known->rank(name));
        module.factor = known->factor(name);
      }
    } else if (!alphas_.empty()) {
      lora_.source_ = "tensors alpha";
      for (const auto& [name, tensor] : alphas_) {
        LoraModule& module = lora_.modules_.at(name);
        module.factor = alpha_in(tensor) / static_cast<double>(module.rank);
      }
    } else {
      lora_.source_ = "none given";
    }
  }

  double alpha_in(const std::string& tensor) const {
    require(numel(tensor_info(tensor).shape) == 1, Status::data,
            "{}: tensor '{}' has shape {}, expected one number", where(), printable(tensor),
            to_string(tensor_info(tensor).shape));
    const float alpha = lora_.file_.load(tensor, DType::float32).data<float>()[0];
    require(std::abs(alpha) <= max_lora_alpha, Status::data,
            "{}: tensor '{}' is {}, expected a number from {} to {}", where(), printable(tensor),
            alpha, -max_lora_alpha, max_lora_alpha);
    return alpha;
  }

  Lora& lora_;
  std::optional<std::string_view> prefix_;
  std::map<std::string, std::string> alphas_;  // of modules: names of tensors
};

Lora Lora::open(const fs::path& path) {
  Lora lora(SafetensorsFile::open(needed_file_in(path)));
  Reader(lora).read();
  return lora;
}

}  // namespace reelmesh
