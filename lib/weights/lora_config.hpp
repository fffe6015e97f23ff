#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weights/config.hpp"

namespace reelmesh {

/// The settings of a LoRA on which the changes of the weights depend (LoraConfig of PEFT). PEFT
/// writes them to adapter_config.json, diffusers to the metadata of the safetensors file.
class LoraConfig {
 public:
  /// Missing keys have PEFT's defaults. prefix: of the keys, such as "transformer.". Error(data)
  /// for values of another type or out of range, and for settings that are not supported: DoRA,
  /// starting values that also change the base weights (PiSSA and others), patterns that are
  /// regular expressions.
  static LoraConfig read(const Config& config, const std::string& prefix = "");

  /// alpha / rank of a module such as "transformer_blocks.0.attn1.to_q"; alpha / sqrt(rank) for
  /// rank-stabilised LoRA. As rank(), Error(data) if two patterns fit the module and have different
  /// values: PEFT takes the first in the file, whose order is not known here.
  double factor(const std::string& module) const;
  /// The rank that it must have.
  std::int64_t rank(const std::string& module) const;

 private:
  /// A value for modules whose names are, or end in, a name.
  template <class T>
  struct Pattern {
    std::string name;
    bool whole = false;  ///< the pattern began with '^': the whole name
    T value;
  };
  template <class T>
  T value_for(const std::string& module, const std::vector<Pattern<T>>& patterns,
              T otherwise) const;

  std::string file_;  ///< for messages
  std::int64_t rank_ = 8;
  double alpha_ = 8;
  bool rank_stabilised_ = false;
  std::vector<Pattern<std::int64_t>> ranks_;
  std::vector<Pattern<double>> alphas_;
};

}  // namespace reelmesh
