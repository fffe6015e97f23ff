#include "job/weights_hash.hpp"

#include <algorithm>
#include <optional>

#include "base/log.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"
#include "base/units.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t much = std::int64_t{2} << 30;  // bytes that take seconds to hash

ModelContents open_alike(const comm::Group& world, const ModelPaths& paths) {
  std::optional<ModelContents> model;
  comm::run_collectively(world, [&] { model.emplace(paths); });
  const std::vector<std::string> outlines = world.all_gather(model->outline());
  for (std::size_t rank = 1; rank < outlines.size(); ++rank) {
    require(outlines[rank] == outlines[0], Status::data,
            "{}: the configs, tokenizer or tensors that rank {} finds there differ from those of "
            "rank 0, expected the same model on all hosts",
            paths.root.string(), rank);
  }
  return std::move(*model);
}

void announce(std::int64_t bytes, const HashCache& cache) {
  if (bytes < much) return;
  log::info("hashing {} of weights{}", format_bytes(static_cast<double>(bytes)),
            cache.folder().empty()
                ? ""
                : fmt::format(" (once; remembered in {})", cache.folder().string()));
}

// The ranks that see the same weight files as this one: those of its host, or of all hosts that
// share a file system. The same paths may lead to different files on hosts with disks of their own.
comm::Group ranks_with_same_files(const comm::Group& world, const ModelContents& model) {
  const std::vector<std::string> all = world.all_gather(model.identity());
  const auto mine = all.begin() + world.rank();
  return world.split(static_cast<int>(std::find(all.begin(), mine, *mine) - all.begin()));
}

// Error(data) unless all ranks have hashed the same bytes.
void require_same_bytes(const comm::Group& world, const ModelContents& model,
                        const TensorHashes& hashes) {
  const TensorHashes first = comm::broadcast_texts(world, hashes, 0);
  const std::string first_host = world.broadcast(host_name(), 0);
  comm::run_collectively(world, [&] {
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      const ModelContents::TensorBytes& tensor = model.tensors()[i];
      require(hashes[i] == first[i], Status::data,
              "{}: tensor '{}' on host {} (rank {}) differs from that on host {} (rank 0), "
              "expected the same model on all hosts",
              model.files()[tensor.file].bytes->path().string(), tensor.name, host_name(),
              world.rank(), first_host);
    }
  });
}

// The hashes of all tensors: what the first of these ranks remembers, and what they hash together.
// Collective over the world.
TensorHashes hash_tensors(const comm::Group& world, const comm::Group& group,
                          const ModelContents& model, const HashCache& cache) {
  TensorHashes hashes =
      comm::broadcast_texts(group, group.rank() == 0 ? cache.find(model) : TensorHashes(), 0);
  std::vector<std::size_t> unknown;
  std::vector<std::int64_t> sizes;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (!hashes[i].empty()) continue;
    unknown.push_back(i);
    sizes.push_back(model.tensors()[i].info->bytes);
    bytes += sizes.back();
  }
  announce(bytes, cache);
  const std::vector<int> owners = divide_by_bytes(sizes, group.size());
  TensorHashes mine;
  comm::run_collectively(world, [&] {
    if (unknown.empty()) return;
    const trace::Scope scope(trace::spans::hash);
    for (std::size_t i = 0; i < unknown.size(); ++i) {
      if (owners[i] == group.rank()) mine.push_back(model.tensor_hash(model.tensors()[unknown[i]]));
    }
  });
  if (unknown.empty()) return hashes;
  // Shares are consecutive, so the blocks in the order of the ranks are in the order of the
  // tensors.
  std::size_t next = 0;
  for (TensorHashes& of_rank : comm::all_gather_texts(group, mine)) {
    for (std::string& hash : of_rank) hashes.at(unknown.at(next++)) = std::move(hash);
  }
  if (group.rank() == 0) {
    const std::string error = cache.store(model, hashes);
    if (!error.empty() && bytes >= much) {
      log::warning("{}; the weights will be hashed again by the next job", error);
    }
  }
  return hashes;
}

}  // namespace

std::string weights_hash(const comm::Group& world, const ModelPaths& paths,
                         const HashCache& cache) {
  const ModelContents model = open_alike(world, paths);
  const comm::Group group = ranks_with_same_files(world, model);
  const TensorHashes hashes = hash_tensors(world, group, model, cache);
  if (world.min(group.size()) < world.size()) {
    require_same_bytes(world, model, hashes);
  }
  return model.hash(hashes);
}

}  // namespace reelmesh
