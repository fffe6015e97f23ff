#pragma once
// Tests of several ranks, each with a device: GPUs that they may share, or emulated ones.
#include <gtest/gtest.h>

#include <map>

#include "comm/group.hpp"
#include "support/ranks.hpp"
#include "tensor/device.hpp"

namespace reelmesh::test {

/// The device of this rank.
inline Device own_device() {
  return device_of_rank(Backend::cuda, comm::Group::world().on_this_host().rank());
}

/// Tests of each rank by itself, on its device: skipped, with the reason, where there is none.
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

/// Each test by each transport: skipped, with the reason, where that cannot be had.
class RanksTest : public testing::TestWithParam<Transport> {
 protected:
  void SetUp() override {
    try {
      device = own_device();
      // A communicator of NCCL takes a second to make; they end with the process.
      static auto& made = *new std::map<Transport, comm::Group>;
      if (!made.contains(GetParam())) {
        made[GetParam()] = test::world().use_device(device, GetParam(), 100);
      }
      world = made[GetParam()];
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
