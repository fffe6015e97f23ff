#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace reelmesh {

/// XXH3 with 128 bits (xxHash): tells apart what differs by accident, not on purpose.
class Hash {
 public:
  static constexpr std::size_t digits = 32;

  Hash();
  void add_bytes(std::string_view bytes);
  /// A text and its length, so that "ab" + "c" differs from "a" + "bc".
  void add(std::string_view text);
  void add(std::int64_t number);
  /// The hash of all that was added so far, as `digits` hexadecimal digits.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// XXH3 of bytes with 64 bits.
std::uint64_t hash_of(std::string_view bytes);

}  // namespace reelmesh
