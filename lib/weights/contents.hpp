#pragma once
// A hash of all that a model's results depend on. Hashing the tensors is divided over the ranks
// (lib/job/weights_hash.cpp), and earlier results are remembered (hash_cache.hpp).
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "weights/checkpoint.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// Hashes of the bytes of tensors, Hash::digits characters each; empty where unknown.
using TensorHashes = std::vector<std::string>;

/// The weight files of a model, opened.
class ModelContents {
 public:
  struct File {
    const RegularFile* bytes;
    std::string sample;  ///< sample_hash()
  };
  struct TensorBytes {
    std::string name;  ///< with its part: "vae/decoder.conv_in.conv.weight", "lora/000/…"
    const TensorInfo* info;
    std::size_t file;  ///< in files()
  };

  /// Reads configs, tokenizer files and the headers of the weight files. Errors as
  /// Checkpoint::open; Error(data) for a config or a tokenizer file above 256 MiB.
  explicit ModelContents(const ModelPaths& paths);

  const std::vector<File>& files() const { return files_; }
  /// All tensors, in the order of their names.
  const std::vector<TensorBytes>& tensors() const { return tensors_; }

  /// A hash of everything but the tensors' bytes: configs, tokenizer files, names, types and shapes
  /// of the tensors, and factors of LoRAs. Those of scale 0 are not part of the model.
  const std::string& outline() const { return outline_; }
  /// A hash of the states of the weight files and of samples of their bytes. Where it is the same
  /// on two hosts, they see the same files of a common file system, or identical copies of a file
  /// system that nobody has written since.
  std::string identity() const;
  /// The hash of all bytes of a tensor. Error(io); Error(data) if its file has changed since it was
  /// opened.
  std::string tensor_hash(const TensorBytes& tensor) const;
  /// The hash of the outline and of all tensors. It does not depend on the folder or on how tensors
  /// are distributed over files.
  std::string hash(const TensorHashes& hashes) const;

 private:
  void add_tensors(Hash& outline, const std::string& prefix,
                   const std::map<std::filesystem::path, const SafetensorsFile*>& files,
                   const TensorInfos& tensors);

  std::vector<Checkpoint> parts_;
  std::vector<File> files_;
  std::vector<TensorBytes> tensors_;
  std::string outline_;
};

/// Divides consecutive items of these sizes over `ranks`, with about the same number of bytes each:
/// the rank of each item. The largest share exceeds the mean by less than the largest item.
std::vector<int> divide_by_bytes(const std::vector<std::int64_t>& bytes, int ranks);

}  // namespace reelmesh
