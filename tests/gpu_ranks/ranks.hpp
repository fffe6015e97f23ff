#pragma once
// Tests with several ranks, each with a device: GPUs, which ranks may share, or emulated GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "comm/group.hpp"
#include "support/ranks.hpp"
#include "tensor/device.hpp"

namespace reelmesh::test {

/// The device of this rank. The first call is collective over all ranks of the launch.
inline Device own_device() {
  static const int on_host = comm::Group::world().on_this_host().rank();
  return device_of_rank(Backend::cuda, on_host);
}

/// Fixture of tests on the device of each rank. Skips them, with the reason, if there is none.
template <class Test>
class OnOwnDevice : public Test {
 protected:
  void SetUp() override {
    try {
      device = own_device();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  Device device;
};

/// Fixture of tests for each transport. Skips them, with the reason, if it is not available.
class RanksTest : public testing::TestWithParam<Transport> {
 protected:
  void SetUp() override {
    try {
      device = own_device();
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
            GetParam(), Made{test::world(), test::world().use_device(device, GetParam(), 100)});
      }
      world = found->second.with_device;
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  Device device;
  comm::Group world;
};

inline const auto transports = testing::Values(Transport::mpi, Transport::nccl);
inline std::string transport_name(const testing::TestParamInfo<Transport>& info) {
  return name_of(info.param);
}

}  // namespace reelmesh::test
