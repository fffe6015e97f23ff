#pragma once
#include "comm/group.hpp"
#include "weights/hash_cache.hpp"

namespace reelmesh {

/// A hash, as 32 hexadecimal digits, of all that a model's results depend on: its configs and
/// tokenizer files, and names, types, shapes and all bytes of its tensors. It depends neither on
/// the folder nor on how tensors are distributed over files. Ranks that see the same files
/// (ModelContents::identity) share the work: the first of them takes the hashes of files that have
/// not changed from `cache`, they hash the others, and the first remembers these. So a host with
/// files of its own hashes them by itself. Error(data) if ranks find different models, or different
/// bytes, under the same paths; errors as ModelContents. Collective.
std::string weights_hash(const comm::Group& world, const ModelPaths& paths, const HashCache& cache);

}  // namespace reelmesh
