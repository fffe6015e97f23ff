#include "pipeline/host_memory.hpp"

#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/log.hpp"
#include "base/system.hpp"
#include "base/units.hpp"
#include "comm/together.hpp"

namespace reelmesh::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

// The number in a file of a cgroup; no_limit if it has none ("max") or is not there.
std::int64_t limit_in(const fs::path& file) {
  std::int64_t limit = 0;
  return std::ifstream(file) >> limit ? limit : no_limit;
}

// The lowest limit in a cgroup and its ancestors, up to `root`, where it is mounted. In a container
// the path may be that of the host, so that only the root is there.
std::int64_t lowest_limit(const fs::path& root, const fs::path& group, const char* file) {
  std::int64_t lowest = limit_in(root / file);
  for (fs::path path = root / group.relative_path(); path != root && path.has_relative_path();
       path = path.parent_path()) {
    lowest = std::min(lowest, limit_in(path / file));
  }
  return lowest;
}

// Lines of /proc/self/cgroup are "number:controllers:path"; version 2 has number 0 and no
// controllers.
std::int64_t cgroup_limit() {
  std::int64_t lowest = no_limit;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) {
      lowest = std::min(lowest, lowest_limit("/sys/fs/cgroup", path, "memory.max"));
    } else if (controllers.find("memory") != controllers.npos) {
      lowest =
          std::min(lowest, lowest_limit("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
    }
  }
  return lowest;
}

}  // namespace

HostMemory host_memory() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return {no_limit, no_limit};
  const auto unit = static_cast<std::int64_t>(info.mem_unit);
  const std::int64_t ram = static_cast<std::int64_t>(info.totalram) * unit;
  const std::int64_t swap = static_cast<std::int64_t>(info.totalswap) * unit;
  const std::int64_t limit = cgroup_limit();
  // A limit of a cgroup does not count what is swapped out.
  const std::int64_t physical = std::min(ram, limit);
  return {physical, physical + swap};
}

void require_host_memory(const comm::Group& world, const MemoryPlan& memory) {
  constexpr double tolerance = 1.1;  // predictions may be too high
  const comm::Group host = world.on_this_host();
  const auto mine = static_cast<double>(memory.peak(world.rank()));
  const double all = host.sum(mine);
  const HostMemory there = host_memory();
  comm::run_collectively(world, [&] {
    rlimit space{};
    const bool limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
    require(!limited || mine <= static_cast<double>(space.rlim_cur), Status::unavailable,
            "rank {} needs {}, its limit of address space (ulimit -v) is {}", world.rank(),
            format_bytes(mine), format_bytes(static_cast<double>(space.rlim_cur)));
    const auto text = [&] {
      return fmt::format("{}: {} rank{} need {} together, the host has {}", host_name(),
                         host.size(), host.size() == 1 ? "" : "s", format_bytes(all),
                         format_bytes(static_cast<double>(there.physical)));
    };
    require(all <= tolerance * static_cast<double>(there.with_swap), Status::unavailable,
            "{}; use more hosts, numerics.dtype = bfloat16 or smaller clips", text());
    if (all > static_cast<double>(there.physical) && host.rank() == 0) {
      log::warning_here("{}; the job is tried all the same", text());
    }
  });
}

}  // namespace reelmesh::pipeline
