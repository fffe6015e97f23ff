#pragma once
// Tests with several ranks, each with a device: GPUs, which ranks may share, or emulated GPUs.
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>

#include "comm/group.hpp"
#include "support/long.hpp"
#include "support/ranks.hpp"
#include "tensor/cuda/libraries.hpp"
#include "tensor/device.hpp"

namespace reelmesh::test {

/// The device of this rank. The first call is collective over all ranks of the launch.
inline Device own_device() {
  static const int on_host = comm::Group::world().on_this_host().rank();
  return device_of_rank(Backend::cuda, on_host);
}

/// Fixture of tests on the device of each rank. Skips them, with the reason, if there is no CUDA
/// device; any other error fails them.
template <class Test>
class OnOwnDevice : public Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
    device = own_device();
  }
  Device device;
};

/// Why ranks that share a GPU cannot use NCCL, the same text on all ranks; empty if they can or if
/// each has a GPU of its own. Collective over the group.
inline std::string why_no_shared_nccl(const comm::Group& group, Device device) {
  std::vector<std::string> gpus = group.on_this_host().all_gather(pci_bus(device));
  std::ranges::sort(gpus);
  const bool shared = std::ranges::adjacent_find(gpus) != gpus.end();
  if (group.max(std::int64_t{shared}) == 0) return "";
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (enabled == nullptr || std::string_view(enabled) != "1") {
    return "ranks share a GPU, and NCCL_MULTI_RANK_GPU_ENABLE is not 1";
  }
  // A library that is missing fails the test: it must be there for the GPUs of one rank each.
  int version = 0;
  const REELMESH_LIBRARY_FUNCTION(cuda::nccl(), ncclGetVersion);
  ncclGetVersion(&version);
  if (version >= 23000) return "";
  return fmt::format("ranks share a GPU, and NCCL {}.{} does not support that", version / 10000,
                     version % 10000 / 100);
}

/// Fixture of tests for each transport. Skips them, with the reason, if there is no CUDA device, or
/// for NCCL where ranks share a GPU and it does not support that; any other error fails them.
class RanksTest : public OnOwnDevice<testing::TestWithParam<Transport>> {
 protected:
  void SetUp() override {
    OnOwnDevice::SetUp();
    if (IsSkipped()) return;
    if (GetParam() == Transport::nccl) {
      const std::string why = why_no_shared_nccl(test::world(), device);
      if (!why.empty()) GTEST_SKIP() << why;
    }
    // Creating an NCCL communicator takes a second, so they are kept. They are not destroyed,
    // because that is collective, and not all of their ranks are in the launch's next group.
    struct Made {
      comm::Group ranks, with_device;
    };
    static auto& made = *new std::multimap<Transport, Made>;
    const auto [first, last] = made.equal_range(GetParam());
    auto found = std::find_if(first, last, [](const auto& entry) {
      return entry.second.ranks.handle() == test::world().handle();
    });
    if (found == last) {
      found = made.emplace(
          GetParam(),
          Made{test::world(), test::world().use_device(device, GetParam(), 100).connected()});
    }
    world = found->second.with_device;
  }
  comm::Group world;
};

inline const auto transports = testing::Values(Transport::mpi, Transport::nccl);
/// For tests of models, whose code is the same for both transports: on emulated GPUs one of them,
/// in tests/long both.
inline std::vector<Transport> transports_of_models() {
#ifdef REELMESH_EMULATED_GPU
  if (!tests_are_long()) return {Transport::nccl};
#endif
  return {Transport::mpi, Transport::nccl};
}
inline std::string transport_name(const testing::TestParamInfo<Transport>& info) {
  return name_of(info.param);
}

}  // namespace reelmesh::test
