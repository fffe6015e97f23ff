#pragma once
// The memory of the emulated devices: one range of addresses, which can be touched only while work
// of a stream runs, so that host code which takes an address of a device for its own crashes.
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
    bool given_up = false;  ///< the host has asked for it to be freed
    bool of_graph = false;  ///< comes and goes when a graph is launched
  };
  struct Usage {
    std::size_t used = 0, used_high = 0;          ///< by blocks
    std::size_t reserved = 0, reserved_high = 0;  ///< and what the pool keeps
  };

  static Memory& instance();

  /// Addresses that nobody else has until give_back(); nothing is written there. None where the
  /// device has too little memory left.
  std::optional<Block> take(int device, std::size_t bytes, bool of_graph);
  void give_back(const Block& block);
  /// The host's side of a block: the one that `address` lies in, if any.
  std::optional<Block> find(const void* address);
  void set_given_up(const Block& block, bool given_up);
  bool is_device(const void* address) const;

  /// What a device does when memory comes and goes: numbers become NaN, of the block and of zones
  /// before and behind it, which have to be as they were in the end. Ends the process if not.
  static void fill(const Block& block);
  static void clear(const Block& block);

  Usage usage(int device);
  void trim(int device, std::size_t keep);  ///< of what the pool has reserved

  /// Access to the memory of all devices, as long as one of these exists.
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
  };

  Memory();
  void add_free(Device& device, std::size_t offset, std::size_t length);
  void open();
  void close();

  std::mutex mutex_, access_mutex_;
  std::byte* base_ = nullptr;
  std::size_t span_ = 0;  // addresses of a device
  std::vector<Device> devices_;
  std::map<const std::byte*, Block> blocks_;
  int accesses_ = 0;
};

}  // namespace reelmesh::emulated
