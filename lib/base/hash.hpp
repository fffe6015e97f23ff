#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace reelmesh {

/// FNV-1a with 64 bits: tells apart what differs by accident, not on purpose.
class Hash {
 public:
  void add_bytes(std::string_view bytes) {
    for (const char c : bytes) {
      value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
  }
  /// A text and its length, so that "ab" + "c" differs from "a" + "bc".
  void add(std::string_view text) {
    add_bytes(text);
    add(static_cast<std::int64_t>(text.size()));
  }
  void add(std::int64_t number) {
    for (int i = 0; i < 8; ++i) {
      const auto byte = static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i));
      add_bytes({&byte, 1});
    }
  }
  std::uint64_t value() const { return value_; }
  std::string hex() const { return fmt::format("{:016x}", value_); }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace reelmesh
