#include "comm/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/file.hpp"
#include "base/units.hpp"
#include "comm/together.hpp"

namespace reelmesh::comm {
namespace {

// A name in /dev/shm, which is removed at the end of its scope.
struct Name {
  std::string text;
  ~Name() {
    if (!text.empty()) shm_unlink(text.c_str());
  }
};

[[noreturn]] void fail_for(std::int64_t bytes, const char* call) {
  fail(Status::unavailable, "no {} of memory for the ranks of this host to share: {}: {}",
       format_bytes(static_cast<double>(bytes)), call, std::strerror(errno));
}

}  // namespace

std::shared_ptr<std::byte> shared_memory(const Group& host, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* memory = MAP_FAILED;
  const auto map = [&](int flags, int descriptor) {
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    if (memory == MAP_FAILED) fail_for(bytes, "mmap");
  };
  if (host.size() == 1) {
    map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
  } else {
    // The first rank makes a file in memory, the others open it; then it loses its name, so that
    // nothing is left behind however the job ends.
    static std::atomic<int> count = 0;
    std::string name = fmt::format("/reelmesh-{}-{}", getpid(), count++);
    name = host.broadcast(name, 0);
    Descriptor file;
    Name made;
    run_collectively(host, [&] {
      if (host.rank() != 0) return;
      file = Descriptor(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
      if (!file) fail_for(bytes, "shm_open");
      made.text = name;
      // Without this, writing would end the process with a signal when there is no more room.
      errno = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
      if (errno != 0) fail_for(bytes, "posix_fallocate in /dev/shm");
    });
    run_collectively(host, [&] {
      if (host.rank() != 0) file = Descriptor(shm_open(name.c_str(), O_RDWR, 0600));
      if (!file) fail_for(bytes, "shm_open");
      map(MAP_SHARED, file.get());
    });
  }
  return {static_cast<std::byte*>(memory), [size](std::byte* at) { munmap(at, size); }};
}

}  // namespace reelmesh::comm
