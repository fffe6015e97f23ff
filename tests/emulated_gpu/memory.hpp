#pragma once
// The memory of the emulated devices: one range of addresses, accessible only while a stream
// executes work. Host code that dereferences a device pointer therefore crashes.
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace reelmesh::emulated {

class Memory {
 public:
  struct Block {
    std::byte* address = nullptr;
    std::size_t bytes = 0;
    int device = 0;
    bool free_requested = false;  ///< by the host; the stream may not have freed it yet
    bool of_graph = false;        ///< allocated and freed by launches of a graph
  };
  struct Usage {
    std::size_t used = 0, used_high = 0;          ///< bytes in blocks: now, peak
    std::size_t reserved = 0, reserved_high = 0;  ///< bytes in blocks and kept by the pool
  };

  static Memory& instance();

  /// Reserves addresses until give_back(); writes nothing there. None if the device has too little
  /// memory left.
  std::optional<Block> take(int device, std::size_t bytes, bool of_graph);
  void give_back(const Block& block);
  /// The block that contains `address`, if any.
  std::optional<Block> find(const void* address);
  void set_free_requested(const Block& block, bool free_requested);
  bool is_device(const void* address) const;

  /// Executed in stream order when a block is allocated and freed. fill() sets the block and guard
  /// zones before and after it to NaN; clear() sets the block to NaN again and aborts the process
  /// if a guard zone was written to.
  static void fill(const Block& block);
  static void clear(const Block& block);

  Usage usage(int device);
  /// Takes memory that is no block, of a library; gives it back if bytes < 0. False if the device
  /// has too little left.
  bool take_outside(int device, std::int64_t bytes);
  std::size_t outside(int device);  ///< bytes
  /// Another process takes memory of all devices, as far as it is free.
  void take_by_others(std::size_t bytes);
  void trim(int device, std::size_t keep);  ///< releases reserved memory beyond `keep` bytes

  /// The memory of all devices is accessible as long as at least one of these exists.
  class Access {
   public:
    Access();
    ~Access();
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
  };

 private:
  struct Device {
    std::map<std::size_t, std::size_t> free;  // offset → length
    Usage usage;
    std::size_t outside = 0;
  };

  Memory();
  void add_free(Device& device, std::size_t offset, std::size_t length);
  void open();
  void close();

  std::mutex mutex_, access_mutex_;
  std::byte* base_ = nullptr;
  std::size_t span_ = 0;  // bytes of address space per device
  std::vector<Device> devices_;
  std::map<const std::byte*, Block> blocks_;
  int accesses_ = 0;
};

}  // namespace reelmesh::emulated
