#pragma once
#include "comm/group.hpp"
#include "weights/hash_cache.hpp"

namespace reelmesh::pipeline {

/// A hash, as 32 hexadecimal digits, of all that a model's results depend on: its configs and
/// tokenizer files, and names, types, shapes and all bytes of its tensors. It depends neither on
/// the folder nor on how tensors are distributed over files. The first rank takes the hashes of
/// files that have not changed from `cache`; the ranks share the work of hashing the others, which
/// the first rank then remembers. Error(data) if the ranks find different models under the same
/// paths; errors as ModelContents. Collective.
std::string model_fingerprint(const comm::Group& world, const ModelPaths& paths,
                              const HashCache& cache);

}  // namespace reelmesh::pipeline
