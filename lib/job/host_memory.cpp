#include "job/host_memory.hpp"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "base/system.hpp"
#include "base/units.hpp"
#include "comm/together.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

// A limit of what this process may allocate. Libraries that reach it end the process with a signal
// or with status 1. The two numbers are generously more than MPI_Init takes, and than oneDNN, HDF5
// and MPI take while the job runs.
struct ProcessLimit {
  int resource;
  const char* name;
  std::int64_t to_start, of_libraries;
};
constexpr std::array process_limits{
    ProcessLimit{RLIMIT_AS, "address space (ulimit -v)", std::int64_t{256} << 20,
                 std::int64_t{128} << 20},
    ProcessLimit{RLIMIT_DATA, "data (ulimit -d)", std::int64_t{64} << 20, std::int64_t{64} << 20}};

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

// The number in a file of a cgroup; no_limit if it has none ("max") or is not there.
std::int64_t limit_in(const fs::path& file) {
  std::int64_t limit = 0;
  return std::ifstream(file) >> limit ? limit : no_limit;
}

// Files of a version of cgroups.
struct GroupFiles {
  const char *root, *limit, *used, *unneeded;  // unneeded: a line of memory.stat
};
constexpr GroupFiles version_1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                               "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles version_2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

// Of cgroups: the lowest limit, and the least that one leaves below its limit.
struct GroupMemory {
  std::int64_t limit = no_limit, left = no_limit;
};

// The number behind a name in a file of such lines; 0 if it is not there.
std::int64_t value_in(const fs::path& file, std::string_view name) {
  std::ifstream lines(file);
  std::int64_t value = 0;
  for (std::string word; lines >> word >> value;) {
    if (word == name) return value;
    lines.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

void add(GroupMemory& memory, const fs::path& group, const GroupFiles& files) {
  const std::int64_t limit = limit_in(group / files.limit);
  if (limit == no_limit) return;
  memory.limit = std::min(memory.limit, limit);
  const std::int64_t used = limit_in(group / files.used);
  if (used == no_limit) return;  // it has no such file
  // Linux takes back what it has only cached of files.
  const std::int64_t needed = used - value_in(group / "memory.stat", files.unneeded);
  memory.left = std::min(memory.left, limit - needed);
}

// Adds a cgroup and its ancestors, up to the root, where it is mounted. In a container the path may
// be that of the host, so that only the root is there.
void add_with_ancestors(GroupMemory& memory, const fs::path& group, const GroupFiles& files) {
  const fs::path root = files.root;
  add(memory, root, files);
  for (fs::path path = root / group.relative_path(); path != root && path.has_relative_path();
       path = path.parent_path()) {
    add(memory, path, files);
  }
}

// Lines of /proc/self/cgroup are "number:controllers:path"; version 2 has number 0 and no
// controllers.
GroupMemory cgroup_memory() {
  GroupMemory memory;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) {
      add_with_ancestors(memory, path, version_2);
    } else if (controllers.find("memory") != controllers.npos) {
      add_with_ancestors(memory, path, version_1);
    }
  }
  return memory;
}

// Bytes; nullopt without a limit.
std::optional<std::int64_t> limit_bytes(const ProcessLimit& limit) {
  rlimit space{};
  if (getrlimit(limit.resource, &space) != 0 || space.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(std::min<rlim_t>(space.rlim_cur, no_limit));
}

// What this process uses of it, with its libraries, MPI and stacks; 0 if unknown.
std::int64_t used_bytes(const ProcessLimit& limit) {
  const std::string name = limit.resource == RLIMIT_AS ? "VmSize:" : "VmData:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoll(line.substr(name.size())) * 1024;
  }
  return 0;
}

std::int64_t stack_bytes() {
  std::size_t bytes = 8 << 20;
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) == 0) {
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
  }
  return static_cast<std::int64_t>(bytes);
}

// Error(unavailable) if this process needs `more` bytes than it may have.
void require_below(const ProcessLimit& limit, std::int64_t more, LaunchedRank rank,
                   const char* what) {
  const std::int64_t max = limit_bytes(limit).value_or(no_limit), used = used_bytes(limit);
  if (more <= max - used) return;
  const auto shown = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  throw Error(
      Status::unavailable,
      fmt::format("the limit of {} is {}, expected at least {}: {} in use and {} for {}",
                  limit.name, shown(max), shown(used + more), shown(used), shown(more), what),
      rank);
}

}  // namespace

void require_memory_to_start() {
  for (const ProcessLimit& limit : process_limits) {
    if (!limit_bytes(limit)) continue;
    // Every arena of malloc, one for each thread, would reserve 64 MiB of addresses.
    mallopt(M_ARENA_MAX, 1);
    require_below(limit, limit.to_start, log::launch_rank(), "MPI and other libraries");
  }
}

HostMemory host_memory() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return {no_limit, no_limit};
  const auto unit = static_cast<std::int64_t>(info.mem_unit);
  const std::int64_t ram = static_cast<std::int64_t>(info.totalram) * unit;
  const std::int64_t swap = static_cast<std::int64_t>(info.totalswap) * unit;
  const std::int64_t limit = cgroup_memory().limit;
  // A limit of a cgroup does not count what is swapped out.
  const std::int64_t physical = std::min(ram, limit);
  return {physical, physical + swap};
}

std::int64_t available_host_memory() {
  constexpr std::int64_t kibibyte = 1024;
  const std::int64_t swap = kibibyte * value_in("/proc/meminfo", "SwapFree:");
  const std::int64_t free = kibibyte * value_in("/proc/meminfo", "MemAvailable:");
  const std::int64_t left = cgroup_memory().left;
  return std::min(free, left) + swap;
}

std::int64_t resident_bytes() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

void require_host_memory(const comm::Group& world, const MemoryPlan& memory, int threads) {
  constexpr double tolerance = 1.1;  // predictions may be too high
  const comm::Group host = world.on_this_host();
  const std::int64_t peak = memory.host_peak(world.rank());
  const std::int64_t program = memory.on_gpu() ? memory.host_program : memory.program;
  const auto mine = static_cast<double>(peak);
  const double all = host.sum(mine), max = host.max(mine);
  const HostMemory there = host_memory();
  comm::run_collectively(world, [&] {
    for (const ProcessLimit& limit : process_limits) {
      require_below(limit, peak - program + (threads - 1) * stack_bytes() + limit.of_libraries,
                    log::rank(), "the job");
    }
    const auto text = [&] {
      return fmt::format("{}: {} rank{} need {} together, the host has {}{}", host_name(),
                         host.size(), host.size() == 1 ? "" : "s", format_bytes(all),
                         format_bytes(static_cast<double>(there.physical)),
                         memory.on_gpu() ? fmt::format(" (memory of the host, not of GPUs; a rank "
                                                       "needs up to {} of it)",
                                                       format_bytes(max))
                                         : "");
    };
    require(all <= tolerance * static_cast<double>(there.with_swap), Status::unavailable,
            "{}; use more hosts, {} or smaller clips", text(),
            memory.on_gpu() ? "fewer ranks on each" : "numerics.dtype = bfloat16");
    if (all > static_cast<double>(there.physical) && host.rank() == 0) {
      log::warning_here("{}; continuing, but the job may run out of memory", text());
    }
  });
}

}  // namespace reelmesh
