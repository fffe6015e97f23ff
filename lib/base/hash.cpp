#include "base/hash.hpp"

#include <xxhash.h>

#include <new>

#include "base/error.hpp"

namespace reelmesh {

void Hash::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Hash::Hash() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Hash::add_bytes(std::string_view bytes) {
  expect(XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()) == XXH_OK, "xxHash failed");
}

void Hash::add(std::string_view text) {
  add_bytes(text);
  add(static_cast<std::int64_t>(text.size()));
}

void Hash::add(std::int64_t number) {
  std::string bytes;  // little-endian on every processor
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i)));
  }
  add_bytes(bytes);
}

std::uint64_t hash_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string Hash::hex() const {
  const XXH128_hash_t value = XXH3_128bits_digest(state_.get());
  return fmt::format("{:016x}{:016x}", value.high64, value.low64);
}

}  // namespace reelmesh
