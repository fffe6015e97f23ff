#include "pipeline/fingerprint.hpp"

#include <optional>

#include "base/log.hpp"
#include "base/trace.hpp"
#include "base/units.hpp"
#include "comm/together.hpp"

namespace reelmesh::pipeline {
namespace {

constexpr std::int64_t much = std::int64_t{2} << 30;  // bytes that take seconds to hash

// Hashes as one text, and back. An unknown hash is '-'.
std::string pack(const TensorHashes& hashes) {
  std::string text;
  for (const std::string& hash : hashes) text += (hash.empty() ? "-" : hash) + "\n";
  return text;
}

TensorHashes unpack(const std::string& text) {
  TensorHashes hashes;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    hashes.push_back(line == "-" ? "" : line);
    begin = end + 1;
  }
  return hashes;
}

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

}  // namespace

std::string model_fingerprint(const comm::Group& world, const ModelPaths& paths,
                              const HashCache& cache) {
  const ModelContents model = open_alike(world, paths);
  TensorHashes hashes =
      unpack(world.broadcast(world.rank() == 0 ? pack(cache.find(model)) : "", 0));

  std::vector<std::size_t> unknown;
  std::vector<std::int64_t> sizes;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (!hashes[i].empty()) continue;
    unknown.push_back(i);
    sizes.push_back(model.tensors()[i].info->bytes);
    bytes += sizes.back();
  }
  if (unknown.empty()) return model.fingerprint(hashes);
  announce(bytes, cache);
  const trace::Scope scope("hash", trace::Level::stages, "file");

  const std::vector<int> owners = divide_by_bytes(sizes, world.size());
  TensorHashes mine;
  comm::run_collectively(world, [&] {
    for (std::size_t i = 0; i < unknown.size(); ++i) {
      if (owners[i] == world.rank()) mine.push_back(model.hash_of(model.tensors()[unknown[i]]));
    }
  });
  // Shares are consecutive, so the blocks in the order of the ranks are in the order of the
  // tensors.
  std::size_t next = 0;
  for (const std::string& block : world.all_gather(pack(mine))) {
    for (std::string& hash : unpack(block)) hashes.at(unknown.at(next++)) = std::move(hash);
  }
  if (world.rank() == 0) {
    const std::string error = cache.store(model, hashes);
    if (!error.empty() && bytes >= much) {
      log::warning("{}; the weights will be hashed again by the next job", error);
    }
  }
  return model.fingerprint(hashes);
}

}  // namespace reelmesh::pipeline
