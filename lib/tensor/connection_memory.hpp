#pragma once
// What NCCL's communicators take of a GPU's memory.
#include <cstdint>

namespace reelmesh {

/// Channels of messages beside others, for weights: each is a block of threads, of which an H100
/// runs 132 at a time. Given to NCCL as ncclConfig_t::maxCTAs.
constexpr int background_channels = 8;

/// Bytes of a communicator with so many connected ranks on the same node and on others. A pair of
/// ranks has up to 32 channels over NVLink, and 2 over a network (src/graph/paths.cc of NCCL 2.30);
/// a channel of a pair takes 14 MiB: 3.28 GB for 7 pairs on eight H100 (NVIDIA/nccl #1685). Not
/// measured here.
constexpr std::int64_t connection_bytes(std::int64_t near, std::int64_t far, bool background) {
  constexpr std::int64_t communicator = std::int64_t{200} << 20, channel = std::int64_t{14} << 20;
  const std::int64_t channels = background ? background_channels : 32;
  return communicator + (near * channels + far * 2) * channel;
}

}  // namespace reelmesh
