#include "job/weight_copies.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/file_state.hpp"
#include "base/log.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"
#include "base/units.hpp"
#include "comm/together.hpp"
#include "weights/contents.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t part_bytes = std::int64_t{32} << 20;  // that a host reads at a time

std::string size(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// Free space of the folder for this many bytes.
void require_room(const fs::path& folder, std::int64_t bytes) {
  struct statvfs found {};
  require(::statvfs(folder.c_str(), &found) == 0, Status::cannot_create,
          "model.copy-to: {} on host {} cannot be used, expected a folder of each host",
          folder.string(), host_name());
  const auto room = static_cast<std::int64_t>(found.f_bavail * found.f_frsize);
  require(room >= bytes, Status::unavailable,
          "model.copy-to: {} on host {} has {} of free space, expected {} for the weights",
          folder.string(), host_name(), size(room), size(bytes));
}

// Opens one file on all ranks of a host, empty, without a name. Collective over the world.
Descriptor unnamed_file(const comm::Group& world, const comm::Group& host, const fs::path& folder) {
  Descriptor file;
  std::string name;
  comm::run_collectively(world, [&] {
    if (host.rank() != 0) return;
    name = (folder / ".reelmesh-XXXXXX").string();
    file = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
    require(static_cast<bool>(file), Status::cannot_create,
            "model.copy-to: no file can be made in {} on host {}", folder.string(), host_name());
  });
  name = host.broadcast(name, 0);
  comm::run_collectively(world, [&] {
    if (host.rank() != 0) file = open_file(name, O_RDONLY);
  });
  if (host.rank() == 0) ::unlink(name.c_str());
  return file;
}

// copying: the first ranks of all hosts.
void copy_file(const comm::Group& world, const comm::Group& copying, const RegularFile& source,
               int target, const fs::path& folder) {
  const std::int64_t hosts = world.max(std::int64_t{copying.size()});
  for (std::int64_t begin = 0; begin < source.size(); begin += hosts * part_bytes) {
    const auto first = [&](std::int64_t host) {
      return std::min(begin + host * part_bytes, source.size());
    };
    std::string part;
    comm::run_collectively(world, [&] {
      if (!copying.member()) return;
      const std::int64_t mine = first(copying.rank());
      part = source.copy(mine, first(copying.rank() + 1) - mine);
    });
    std::vector<std::string> parts;
    for (int host = 0; copying.member() && host < copying.size(); ++host) {
      parts.push_back(copying.broadcast(host == copying.rank() ? part : std::string(), host));
    }
    comm::run_collectively(world, [&] {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        write_at(target, folder, parts[i].data(), parts[i].size(),
                 first(static_cast<std::int64_t>(i)));
      }
    });
  }
}

}  // namespace

void copy_weights_together(const comm::Group& world, const ModelPaths& paths,
                           const fs::path& folder) {
  copy_weights_together(world, world.on_this_host(), paths, folder);
}

void copy_weights_together(const comm::Group& world, const comm::Group& host,
                           const ModelPaths& paths, const fs::path& folder) {
  const trace::Scope scope(trace::spans::copy_weights);
  const comm::Group copying = world.split(host.rank() == 0 ? 0 : -1);
  const ModelContents model(paths);
  std::int64_t bytes = 0;
  for (const ModelContents::File& file : model.files()) bytes += file.bytes->size();
  comm::run_collectively(world, [&] {
    if (host.rank() == 0) require_room(folder, bytes);
  });
  const std::int64_t hosts = world.max(std::int64_t{copying.size()});
  log::info("copying {} of weights to {} on {} host{}", size(bytes), folder.string(), hosts,
            hosts == 1 ? "" : "s");
  for (const ModelContents::File& file : model.files()) {
    Descriptor copy = unnamed_file(world, host, folder);
    copy_file(world, copying, *file.bytes, copy.get(), folder);
    use_copy(file.bytes->path(), std::move(copy));
  }
  world.barrier();  // the copies are complete on all hosts
}

}  // namespace reelmesh
