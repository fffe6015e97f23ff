#pragma once
// What the folder of a part holds, and whether that is what its configuration asks for. Reads
// config.json and the headers of the weights only.
#include <filesystem>
#include <map>
#include <optional>

#include "models/checkpoints/parts.hpp"

namespace reelmesh {

struct PartSurvey {
  ModelPart part{};
  std::filesystem::path folder;

  /// Where the folder could not be read to the end: why. What stands below is what was found
  /// before.
  Status status = Status::ok;
  std::string problem;

  std::optional<Config> config;
  std::string class_name;  ///< as the configuration says; empty where it could not be read

  std::size_t files = 0;
  std::int64_t tensors = 0, parameters = 0;
  std::map<std::string, std::int64_t> bytes;  ///< by type, as the files call it: "BF16"

  std::size_t expected = 0;  ///< tensors that the configuration asks for
  std::vector<std::string> missing;
  std::vector<Difference::WrongShape> wrong_shapes;
  struct WrongType {
    std::string name, dtype;
  };
  std::vector<WrongType> wrong_types;   ///< not F32, F16 or BF16
  std::vector<std::string> unexpected;  ///< never in the way
  /// Tensors missing or misshapen that no clip needs: those of the VAE's encoder.
  std::size_t unneeded = 0, unneeded_missing = 0, unneeded_wrong = 0;

  /// ok if clips can be made with it, no_input for missing files, data for the wrong ones.
  Status verdict() const;
};

/// Does not throw for what the folder holds.
PartSurvey survey(ModelPart part, const std::filesystem::path& folder);

}  // namespace reelmesh
