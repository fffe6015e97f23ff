#include "emulated_gpu/memory.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>

#include "emulated_gpu/settings.hpp"

namespace reelmesh::emulated {
namespace {

constexpr std::size_t unit = 256;  // alignment of blocks, and minimum length of a guard zone
constexpr std::byte poison{0xff};  // NaN in every type

std::size_t rounded(std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }

// Bytes of a block with its guard zones: one before it, and one from its last byte on.
std::size_t guarded_bytes(std::size_t bytes) { return rounded(bytes) + 2 * unit; }

struct sigaction earlier_action;

// Handler of SIGSEGV: prints a message and reinstates the previous handler, which gets the fault
// when the instruction is executed again.
void on_fault(int signal, siginfo_t* info, void*) {
  if (Memory::instance().is_device(info->si_addr)) {
    const char message[] = "emulated GPU: the host touched memory of a device\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, message, sizeof(message) - 1);
  }
  ::sigaction(signal, &earlier_action, nullptr);
}

void check_zone(const Memory::Block& block, const std::byte* begin, const std::byte* end) {
  const auto* bad = std::find_if(begin, end, [](std::byte b) { return b != poison; });
  if (bad == end) return;
  stop("a write " +
       (bad < block.address
            ? std::to_string(block.address - bad) + " bytes before"
            : std::to_string(bad - block.address - static_cast<std::ptrdiff_t>(block.bytes)) +
                  " bytes behind the end of") +
       " a block of " + std::to_string(block.bytes) + " bytes on device " +
       std::to_string(block.device));
}

}  // namespace

// Never destroyed: streams execute work until the process ends.
Memory& Memory::instance() {
  static auto& memory = *new Memory;
  return memory;
}

Memory::Memory() : devices_(static_cast<std::size_t>(settings().devices)) {
  // Address space is free: four times the memory size, so that fragmentation seldom matters.
  span_ = 4 * rounded(std::max<std::size_t>(settings().memory, 1 << 20));
  const std::size_t all = span_ * devices_.size();
  void* range = ::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) stop("no " + std::to_string(all) + " bytes of addresses");
  ::madvise(range, all, MADV_HUGEPAGE);  // a hint; mprotect is faster with fewer pages
  base_ = static_cast<std::byte*>(range);
  for (Device& device : devices_) device.free.emplace(0, span_);
  struct sigaction action {};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &earlier_action);
}

bool Memory::is_device(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= base_ && at < base_ + span_ * devices_.size();
}

std::optional<Memory::Block> Memory::take(int number, std::size_t bytes, bool of_graph) {
  const std::scoped_lock lock(mutex_);
  Device& device = devices_[static_cast<std::size_t>(number)];
  Usage& usage = device.usage;
  const std::size_t room = settings().memory - device.outside;
  if (bytes > room || usage.used + rounded(bytes) > room) return {};
  const std::size_t length = guarded_bytes(bytes);
  const auto fit = std::find_if(device.free.begin(), device.free.end(),
                                [&](const auto& hole) { return hole.second >= length; });
  if (fit == device.free.end()) return {};
  const auto [offset, hole] = *fit;
  device.free.erase(fit);
  if (hole > length) device.free.emplace(offset + length, hole - length);
  usage.used += rounded(bytes);
  usage.used_high = std::max(usage.used_high, usage.used);
  usage.reserved = std::max(usage.reserved, usage.used);
  usage.reserved_high = std::max(usage.reserved_high, usage.reserved);
  std::byte* address = base_ + static_cast<std::size_t>(number) * span_ + offset + unit;
  const Block block{address, bytes, number, false, of_graph};
  blocks_.emplace(address, block);
  return block;
}

void Memory::give_back(const Block& block) {
  const std::scoped_lock lock(mutex_);
  Device& device = devices_[static_cast<std::size_t>(block.device)];
  blocks_.erase(block.address);
  device.usage.used -= rounded(block.bytes);
  const std::byte* first = base_ + static_cast<std::size_t>(block.device) * span_;
  add_free(device, static_cast<std::size_t>(block.address - first) - unit,
           guarded_bytes(block.bytes));
}

void Memory::add_free(Device& device, std::size_t offset, std::size_t length) {
  auto next = device.free.lower_bound(offset);
  if (next != device.free.end() && offset + length == next->first) {
    length += next->second;
    next = device.free.erase(next);
  }
  if (next != device.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  device.free.emplace(offset, length);
}

std::optional<Memory::Block> Memory::find(const void* address) {
  const std::scoped_lock lock(mutex_);
  const auto* at = static_cast<const std::byte*>(address);
  const auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return {};
  const Block& block = std::prev(next)->second;
  if (at >= block.address + block.bytes) return {};
  return block;
}

void Memory::set_free_requested(const Block& block, bool free_requested) {
  const std::scoped_lock lock(mutex_);
  blocks_.at(block.address).free_requested = free_requested;
}

void Memory::fill(const Block& block) {
  std::memset(block.address - unit, static_cast<int>(poison), guarded_bytes(block.bytes));
}

void Memory::clear(const Block& block) {
  const std::byte *begin = block.address, *end = begin + block.bytes;
  check_zone(block, begin - unit, begin);
  check_zone(block, end, begin + rounded(block.bytes) + unit);
  std::memset(block.address, static_cast<int>(poison), block.bytes);
}

bool Memory::take_outside(int number, std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  Device& device = devices_[static_cast<std::size_t>(number)];
  const auto then = static_cast<std::size_t>(static_cast<std::int64_t>(device.outside) + bytes);
  if (bytes > 0 && device.usage.reserved + then > settings().memory) return false;
  device.outside = then;
  return true;
}

void Memory::take_by_others(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  for (Device& device : devices_) {
    device.outside += std::min(bytes, settings().memory - device.outside - device.usage.reserved);
  }
}

std::size_t Memory::outside(int device) {
  const std::scoped_lock lock(mutex_);
  return devices_[static_cast<std::size_t>(device)].outside;
}

Memory::Usage Memory::usage(int device) {
  const std::scoped_lock lock(mutex_);
  return devices_[static_cast<std::size_t>(device)].usage;
}

void Memory::trim(int number, std::size_t keep) {
  const std::scoped_lock lock(mutex_);
  Device& device = devices_[static_cast<std::size_t>(number)];
  device.usage.reserved = std::min(device.usage.reserved, std::max(device.usage.used, keep));
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (const auto& [offset, length] : device.free) {
    const std::size_t begin = (offset + page - 1) / page * page;
    const std::size_t end = (offset + length) / page * page;
    if (begin < end) {
      ::madvise(base_ + static_cast<std::size_t>(number) * span_ + begin, end - begin,
                MADV_DONTNEED);
    }
  }
}

void Memory::open() {
  const std::scoped_lock lock(access_mutex_);
  if (accesses_++ == 0) ::mprotect(base_, span_ * devices_.size(), PROT_READ | PROT_WRITE);
}

void Memory::close() {
  const std::scoped_lock lock(access_mutex_);
  if (--accesses_ == 0) ::mprotect(base_, span_ * devices_.size(), PROT_NONE);
}

Memory::Access::Access() { instance().open(); }
Memory::Access::~Access() { instance().close(); }

}  // namespace reelmesh::emulated
