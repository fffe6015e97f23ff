#include "weights/lora.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "weights/json.hpp"
#include "weights/lora_config.hpp"
#include "weights/lora_names.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

constexpr const char* metadata_key = "lora_adapter_metadata";
constexpr const char* peft_config = "adapter_config.json";
constexpr std::string_view peft_prefix = "base_model.model.";

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

/// The file in a folder, as diffusers and PEFT call it; the path itself if it is none.
std::optional<fs::path> file_in(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {"pytorch_lora_weights.safetensors", "adapter_model.safetensors",
                           "pytorch_lora_weights.bin", "adapter_model.bin"}) {
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

const std::string& LoraModule::any() const {
  for (const std::string* tensor : {&down, &up, &bias, &difference, &bias_difference}) {
    if (!tensor->empty()) return *tensor;
  }
  return table_difference;
}

bool may_be_lora(const fs::path& path) {
  const auto file = file_in(path);
  return file && is_file(*file);
}

class Lora::Reader {
 public:
  explicit Reader(Lora& lora) : lora_(lora) {}

  void read() {
    for (const auto& [name, info] : lora_.file_.tensors()) add(name, info);
    for (auto& [name, module] : lora_.modules_) check_pair(name, module);
    require(!lora_.modules_.empty() || left_out_.empty(), Status::data,
            "{}: found a LoRA of text encoders only, expected one of the transformer", where());
    require(
        !lora_.modules_.empty(), Status::data,
        "{}: no tensor of a LoRA{}, expected names such as "
        "'transformer.transformer_blocks.0.attn1.to_q.lora_A.weight'",
        where(),
        lora_.others_.empty() ? "" : fmt::format(" (there is '{}')", printable(lora_.others_[0])));
    const auto with_matrices = std::ranges::find_if(
        lora_.modules_, [](const auto& module) { return module.second.rank > 0; });
    const auto shown =
        with_matrices == lora_.modules_.end() ? lora_.modules_.begin() : with_matrices;
    const LoraName first = read_lora_name(shown->second.any());
    lora_.names_ =
        fmt::format("{} ({}MODULE{})", first.writer, printable(first.prefix), first.ending);
    lora_.underscored_ = first.underscored;
    lora_.text_encoder_modules_ = left_out_.size();
    set_factors();
  }

 private:
  std::string where() const { return lora_.path().string(); }
  const TensorInfo& tensor_info(const std::string& name) const {
    return lora_.file_.tensors().at(name);
  }

  void add(const std::string& name, const TensorInfo& info) {
    const LoraName known = read_lora_name(name);
    if (known.role == LoraRole::text_encoder) {
      left_out_.insert(known.prefix + known.module);
      return;
    }
    if (const OtherAdapter* other = other_adapter(name)) {
      fail(Status::data, "{}: tensor '{}' is of {}, expected a LoRA: {}", where(), printable(name),
           other->kind, other->advice);
    }
    if (known.role == LoraRole::unknown) {
      lora_.others_.push_back(name);
      return;
    }
    require(loadable(info.dtype).has_value(), Status::data, "{}: tensor '{}' holds {}, expected {}",
            where(), printable(name), info.dtype, loadable_types);
    if (!prefix_) prefix_ = known.prefix;
    require(*prefix_ == known.prefix, Status::data,
            "{}: tensor '{}' begins with '{}', others with '{}', expected the same for all",
            where(), printable(name), printable(known.prefix), printable(*prefix_));
    set(part(known), name);
  }

  // Where the name of a tensor with this role is kept.
  std::string& part(const LoraName& known) {
    LoraModule& module = lora_.modules_[known.module];
    switch (known.role) {
      case LoraRole::down:
        return module.down;
      case LoraRole::up:
        return module.up;
      case LoraRole::bias:
        return module.bias;
      case LoraRole::alpha:
        return alphas_[known.module];
      case LoraRole::difference:
        return module.difference;
      case LoraRole::bias_difference:
        return module.bias_difference;
      case LoraRole::table_difference:
        return module.table_difference;
      case LoraRole::text_encoder:
      case LoraRole::unknown:
        break;
    }
    fail(Status::internal, "module {} has no such part", known.module);
  }

  void set(std::string& part, const std::string& name) const {
    require(part.empty(), Status::data, "{}: tensors '{}' and '{}' are the same part of a LoRA",
            where(), printable(part), printable(name));
    part = name;
  }

  void check_pair(const std::string& name, LoraModule& module) {
    const bool matrices = !module.down.empty() || !module.up.empty() || !module.bias.empty() ||
                          alphas_.contains(name);
    if (!matrices) return;  // differences only
    if (module.down.empty() || module.up.empty()) {
      const bool alpha_alone = module.down.empty() && module.up.empty() && module.bias.empty();
      const std::string& found = alpha_alone ? alphas_[name] : module.any();
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
    if (const auto found = lora_.file_.metadata().find(metadata_key);
        found != lora_.file_.metadata().end()) {
      const Config metadata =
          Config::parse(found->second, fmt::format("{}: {}", where(), metadata_key));
      for (const char* prefix : {"transformer.", ""}) {
        if (!metadata.has(std::string(prefix) + "r")) continue;  // of other models
        lora_.source_ = metadata_key;
        return LoraConfig::read(metadata, prefix);
      }
    }
    if (prefix_->find(peft_prefix) == std::string::npos) return std::nullopt;
    const fs::path file = lora_.path().parent_path() / peft_config;
    const auto changed = std::ranges::count_if(
        lora_.modules_, [](const auto& module) { return module.second.rank > 0; });
    const bool needed = std::ssize(alphas_) < changed;
    if (!needed && !is_file(file)) return std::nullopt;
    require(is_file(file), Status::no_input,
            "{}: not found, expected beside {}: it holds lora_alpha of a LoRA saved by PEFT, "
            "which has no tensor alpha for each module",
            file.string(), lora_.path().filename().string());
    constexpr std::int64_t max_bytes = std::int64_t{16} << 20;
    lora_.source_ = peft_config;
    return LoraConfig::read(Config::parse(read_text(file, max_bytes), file));
  }

  void set_factors() {
    if (const std::optional<LoraConfig> known = config()) {
      require(alphas_.empty(), Status::data, "{}: tensor '{}' and {}: alpha is given twice",
              where(), alphas_.empty() ? "" : printable(alphas_.begin()->second), lora_.source_);
      for (auto& [name, module] : lora_.modules_) {
        if (module.rank == 0) continue;
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
  std::optional<std::string> prefix_;
  std::map<std::string, std::string> alphas_;  // of modules: names of tensors
  std::set<std::string> left_out_;             // modules of text encoders
};

std::string Lora::key_of(std::string module) const {
  if (underscored_) std::ranges::replace(module, '.', '_');
  return module;
}

std::string Lora::left_out() const {
  if (text_encoder_modules_ == 0) return "";
  return fmt::format("{}: {} modules of text encoders are not used, only the {} of the transformer",
                     path().string(), text_encoder_modules_, modules_.size());
}

Lora Lora::open(const fs::path& path) {
  const fs::path file = needed_file_in(path);
  Lora lora(SafetensorsFile::open(file));
  Reader(lora).read();
  return lora;
}

}  // namespace reelmesh
