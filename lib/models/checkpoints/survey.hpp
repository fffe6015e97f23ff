#pragma once
// Compares the weights in a part's folder with those that its config.json requires. Reads only
// config.json and the headers of the weight files.
#include <filesystem>
#include <map>
#include <optional>

#include "models/checkpoints/parts.hpp"

namespace reelmesh {

struct PartSurvey {
  ModelPart part{};
  std::filesystem::path folder;

  /// Not ok if the folder could not be read completely; `problem` says why. The fields below then
  /// hold what was found before that.
  Status status = Status::ok;
  std::string problem;

  std::optional<Config> config;
  std::string class_name;  ///< model_class() the configuration; empty if that failed

  std::size_t files = 0;
  std::int64_t tensors = 0, parameters = 0;
  std::map<std::string, std::int64_t> bytes;  ///< by safetensors type, such as "BF16"

  std::size_t expected = 0;  ///< tensors that the configuration requires
  std::vector<std::string> missing;
  std::vector<Difference::WrongShape> wrong_shapes;
  struct WrongType {
    std::string name, dtype;
  };
  std::vector<WrongType> wrong_types;   ///< not of loadable_types
  std::vector<std::string> unexpected;  ///< not used by the model; no error
  /// Tensors that clips from text do not need (the VAE's encoder): all, missing, of a wrong shape;
  /// none if clips begin from an image.
  std::size_t unneeded = 0, unneeded_missing = 0, unneeded_wrong = 0;

  /// Of a VAE whose clips begin from text: whether its encoder is complete.
  bool has_encoder() const { return unneeded_missing + unneeded_wrong == 0; }
  /// ok if clips can be made with this part; `status` if that is not ok; data for tensors that are
  /// missing or have a wrong shape or type.
  Status verdict() const;
};

/// Problems with the folder are recorded in the result, not thrown. transformer: of the model that
/// the part belongs to; null if unknown. If its clips begin from an image, all tensors of the VAE
/// are needed.
PartSurvey survey(ModelPart part, const std::filesystem::path& folder,
                  const PartSurvey* transformer = nullptr);

/// What of the folders of the parts has no effect, for warnings: tensors that nothing reads, by
/// groups, and keys of config.json that ask for something that is not done. Error(data) for unread
/// tensors inside the blocks of a part unless paths.allow_unread; others as Checkpoint::open,
/// Config::read and model_class.
std::vector<std::string> unused_contents_of(const ModelPaths& paths);

}  // namespace reelmesh
