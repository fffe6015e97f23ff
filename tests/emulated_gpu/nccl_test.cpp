// Errors of NCCL's users that the emulation detects. Ranks are threads here.
#include <nccl.h>

#include <thread>

#include "emulated_gpu/device.hpp"

namespace reelmesh::emulated {
namespace {

// Rank 0 sends a byte, rank 1 receives it, each with its device and in a graph or without one.
void send_one(const bool (&captured)[2]) {
  ::setenv("REELMESH_EMULATED_GPUS", "2", 1);
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  const auto rank = [&](int number) {
    cudaStream_t stream = nullptr;
    void* byte = nullptr;
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    cudaSetDevice(number);
    cudaStreamCreate(&stream);
    cudaMallocAsync(&byte, 1, stream);
    ncclCommInitRankConfig(&comm, 2, id, number, &config);
    if (captured[number]) cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (number == 0) {
      ncclSend(byte, 1, ncclUint8, 1, comm, stream);
    } else {
      ncclRecv(byte, 1, ncclUint8, 0, comm, stream);
    }
    if (captured[number]) {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      cudaStreamEndCapture(stream, &graph);
      cudaGraphInstantiate(&executable, graph, 0);
      cudaGraphLaunch(executable, stream);
    }
    cudaStreamSynchronize(stream);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

bool sends_one(bool captured) {
  const bool both[] = {captured, captured};
  send_one(both);
  return true;
}

TEST(EmulatedNccl, BothSidesOfAMessageAreCapturedOrNeither) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  for (const bool captured : {false, true}) {
    EXPECT_EXIT(std::_Exit(sends_one(captured) ? 0 : 1), testing::ExitedWithCode(0), "");
  }
  EXPECT_DEATH(send_one({true, false}),
               "rank 0 sends in a graph to rank 1, which receives without a graph");
  EXPECT_DEATH(send_one({false, true}),
               "rank 0 sends without a graph to rank 1, which receives in a graph");
}

}  // namespace
}  // namespace reelmesh::emulated
