#pragma once
// Methods of training: what of the transformer is trained, and what is written of it.
//
// To add one: a row of the table in train_method.cpp. The option with its help, the fingerprint,
// memory, plans and messages follow from the row.
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace reelmesh {

struct LoraShape;
struct TrainSettings;

/// The files that what is trained becomes.
enum class TrainedFiles {
  lora,        ///< of a LoRA, in lora/
  transformer  ///< of the model's part, in transformer/: all its weights, trained or not
};

struct TrainMethod {
  std::string_view name;    ///< as users write it, and in files
  std::string_view trains;  ///< "all its weights": of the transformer, for the help
  TrainedFiles files;
  /// The low-rank changes that are trained. None: parameters of the model are, and so its weights
  /// must be in memory, and include the changes of LoRAs that are given.
  std::optional<LoraShape> (*lora)(const TrainSettings& settings);
  /// "LoRA of rank 64"
  std::string (*text)(const TrainSettings& settings);
};

std::span<const TrainMethod> train_methods();
/// Error(internal) if there is none.
const TrainMethod& train_method_named(std::string_view name);

}  // namespace reelmesh
