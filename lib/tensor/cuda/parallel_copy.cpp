#include "tensor/cuda/parallel_copy.hpp"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <thread>

namespace reelmesh::cuda {
namespace {

constexpr std::int64_t min_bytes = 1 << 20, page = 4096;

// Threads that wait for parts to copy. Never destroyed, as they wait until the process ends.
class Copiers {
 public:
  explicit Copiers(int others) : others_(others) {
    for (int part = 1; part <= others; ++part) {
      std::thread([this, part] { work(part); }).detach();
    }
  }

  void copy(void* into, const void* from, std::int64_t bytes) {
    const std::lock_guard turn(turns_);
    {
      const std::lock_guard lock(mutex_);
      into_ = static_cast<std::byte*>(into);
      from_ = static_cast<const std::byte*>(from);
      bytes_ = bytes;
      left_ = others_;
      ++call_;
    }
    begun_.notify_all();
    copy_part(0);
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  void work(int part) {
    for (std::int64_t done = 0;; ++done) {
      {
        std::unique_lock lock(mutex_);
        begun_.wait(lock, [&] { return call_ > done; });
      }
      copy_part(part);
      const std::lock_guard lock(mutex_);
      if (--left_ == 0) ended_.notify_one();
    }
  }

  void copy_part(int part) const {
    const std::int64_t parts = others_ + 1;
    const std::int64_t size = (bytes_ / parts + page) / page * page;
    const std::int64_t first = std::min(bytes_, part * size);
    std::memcpy(into_ + first, from_ + first,
                static_cast<std::size_t>(std::min(size, bytes_ - first)));
  }

  const int others_;
  std::mutex turns_, mutex_;
  std::condition_variable begun_, ended_;
  std::int64_t call_ = 0;  // number of calls so far
  int left_ = 0;           // threads that have not copied their part of this call
  std::byte* into_ = nullptr;
  const std::byte* from_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace

int copy_threads() {
  static const int threads = [] {
    constexpr int max = 4;
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
    return std::clamp(CPU_COUNT(&cores), 1, max);
  }();
  return threads;
}

void parallel_copy(void* into, const void* from, std::int64_t bytes) {
  if (bytes < min_bytes || copy_threads() == 1) {
    std::memcpy(into, from, static_cast<std::size_t>(bytes));
    return;
  }
  static auto& copiers = *new Copiers(copy_threads() - 1);
  copiers.copy(into, from, bytes);
}

}  // namespace reelmesh::cuda
