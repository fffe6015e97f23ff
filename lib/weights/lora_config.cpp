#include "weights/lora_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "weights/json.hpp"
#include "weights/lora.hpp"
#include "weights/lora_patterns.hpp"

namespace reelmesh {
namespace {

// Patterns of PEFT are regular expressions. Of those, names are supported: '.' stands for itself.
std::string name_of_pattern(const std::string& pattern, const Config& config) {
  std::string name;
  for (std::size_t i = pattern.starts_with('^') ? 1 : 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size() && pattern[i + 1] == '.') ++i;
    const char c = pattern[i];
    require(std::string_view("\\*+?()[]{}|^$").find(c) == std::string_view::npos, Status::data,
            "{}: the pattern '{}' is a regular expression, expected the name of a module",
            config.file().string(), printable(pattern));
    name += c;
  }
  return name;
}

}  // namespace

LoraConfig LoraConfig::read(const Config& config, const std::string& prefix) {
  const auto type = config.get_string(prefix + "peft_type", "LORA");
  require(type == "LORA", Status::data, "{}: peft_type is {}, expected LORA",
          config.file().string(), printable(type));
  for (const char* key : {"use_dora", "use_qalora"}) {
    only_supported(config, prefix + key, config.get_bool(prefix + key, false), false);
  }
  // These begin with parts of the base weights, which they subtract from them.
  const std::string start_key = prefix + "init_lora_weights";
  const std::string start = config.is_string(start_key) ? config.get_string(start_key, "") : "";
  const std::array<std::string_view, 4> not_supported{"pissa", "olora", "corda", "loftq"};
  require(std::ranges::none_of(not_supported,
                               [&](std::string_view name) { return start.starts_with(name); }),
          Status::data,
          "{}: init_lora_weights is {}, which changes the base weights, too, expected a LoRA that "
          "was converted to a plain one",
          config.file().string(), printable(start));

  LoraConfig out;
  out.file_ = config.file().string();
  out.rank_ = config.get_int(prefix + "r", out.rank_, 1, max_lora_rank);
  out.alpha_ =
      config.get_double(prefix + "lora_alpha", out.alpha_, -max_lora_alpha, max_lora_alpha);
  out.rank_stabilised_ = config.get_bool(prefix + "use_rslora", false);
  const Config ranks = config.get_object(prefix + "rank_pattern");
  for (const std::string& key : ranks.keys()) {
    out.ranks_.push_back({name_of_pattern(key, ranks), key.starts_with('^'),
                          ranks.get_int(key, out.rank_, 1, max_lora_rank)});
  }
  const Config alphas = config.get_object(prefix + "alpha_pattern");
  for (const std::string& key : alphas.keys()) {
    out.alphas_.push_back({name_of_pattern(key, alphas), key.starts_with('^'),
                           alphas.get_double(key, out.alpha_, -max_lora_alpha, max_lora_alpha)});
  }
  return out;
}

template <class T>
T LoraConfig::value_for(const std::string& module, const std::vector<Pattern<T>>& patterns,
                        T otherwise) const {
  const Pattern<T>* found = nullptr;
  for (const Pattern<T>& pattern : patterns) {
    if (pattern.whole ? module != pattern.name : !names_module(pattern.name, module)) continue;
    if (found != nullptr && found->value != pattern.value) {
      fail(Status::data,
           "{}: the patterns '{}' and '{}' give module '{}' the values {} and {}, expected one "
           "value",
           file_, printable(found->name), printable(pattern.name), printable(module), found->value,
           pattern.value);
    }
    found = &pattern;
  }
  return found == nullptr ? otherwise : found->value;
}

std::int64_t LoraConfig::rank(const std::string& module) const {
  return value_for(module, ranks_, rank_);
}

double LoraConfig::factor(const std::string& module) const {
  const auto r = static_cast<double>(rank(module));
  return value_for(module, alphas_, alpha_) / (rank_stabilised_ ? std::sqrt(r) : r);
}

}  // namespace reelmesh
