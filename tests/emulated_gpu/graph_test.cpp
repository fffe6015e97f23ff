// Stream capture and graphs of the emulated GPU.
#include "emulated_gpu/device.hpp"

namespace reelmesh::emulated {
namespace {

class EmulatedGraph : public EmulatedGpu {
 protected:
  void SetUp() override {
    EmulatedGpu::SetUp();
    succeed(cudaEventCreate(&event));
    counter = memory(4);
    set(counter, 0, 4);
    succeed(cudaStreamSynchronize(stream));
  }
  void TearDown() override {
    if (executable != nullptr) succeed(cudaGraphExecDestroy(executable));
    succeed(cudaFreeAsync(counter, stream));
    succeed(cudaEventDestroy(event));
    EmulatedGpu::TearDown();
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    succeed(cudaStreamBeginCapture(stream, mode));
  }
  cudaError_t end(unsigned long long flags = 0) {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream, &graph);
    if (status != cudaSuccess) return status;
    succeed(cudaGraphInstantiate(&executable, graph, flags));
    return cudaGraphDestroy(graph);
  }
  // Adds 1 to a byte of the counter, in stream order.
  void count(cudaStream_t where, int byte = 0) {
    succeed(enqueue(where, {"count", [at = counter + byte] {
                              *at = std::byte(std::to_integer<int>(*at) + 1);
                            }}));
  }

  cudaEvent_t event = nullptr;
  cudaGraphExec_t executable = nullptr;
  std::byte* counter = nullptr;
};

TEST_F(EmulatedGraph, WorkIsDoneAtEachLaunchOnly) {
  begin();
  count(stream);
  count(stream, 1);
  count(stream, 1);
  succeed(end());
  EXPECT_EQ(read(counter, 4), std::vector<int>(4, 0));
  for (int i = 0; i < 3; ++i) succeed(cudaGraphLaunch(executable, stream));
  EXPECT_EQ(read(counter, 4), (std::vector<int>{3, 6, 0, 0}));
}

TEST_F(EmulatedGraph, HasWorkOfStreamsThatJoin) {
  begin();
  set(counter, 5);
  succeed(cudaEventRecord(event, stream));
  succeed(cudaStreamWaitEvent(other, event));
  cudaStreamCaptureStatus status{};
  succeed(cudaStreamIsCapturing(other, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  count(other);
  count(stream, 1);
  succeed(cudaEventRecord(event, other));
  succeed(cudaStreamWaitEvent(stream, event));
  succeed(cudaMemcpyAsync(counter + 2, counter, 2, cudaMemcpyDeviceToDevice, stream));
  succeed(end());
  succeed(cudaStreamIsCapturing(other, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  succeed(cudaGraphLaunch(executable, stream));
  EXPECT_EQ(read(counter, 4), (std::vector<int>{6, 1, 6, 1}));
}

TEST_F(EmulatedGraph, StreamsMustComeBack) {
  begin();
  succeed(cudaEventRecord(event, stream));
  succeed(cudaStreamWaitEvent(other, event));
  count(other);
  expect_status(end(), cudaErrorStreamCaptureUnjoined);
  count(other);
  EXPECT_EQ(read(counter, 1, other), std::vector<int>{1});
}

TEST_F(EmulatedGraph, WaitingDuringCaptureFails) {
  const auto refused = [&](cudaError_t expected, const auto& call) {
    begin();
    expect_status(call(), expected);
    expect_status(end(), cudaErrorStreamCaptureInvalidated);
  };
  refused(cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(stream); });
  refused(cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamQuery(stream); });
  refused(cudaErrorStreamCaptureUnsupported, [&] { return cudaDeviceSynchronize(); });
  refused(cudaErrorStreamCaptureUnsupported, [&] {
    void* address = nullptr;
    return cudaMalloc(&address, 8);
  });
  refused(cudaErrorCapturedEvent, [&] {
    succeed(cudaEventRecord(event, stream));
    return cudaEventSynchronize(event);
  });
  cudaEvent_t before = nullptr;
  succeed(cudaEventCreate(&before));
  succeed(cudaEventRecord(before, other));
  refused(cudaErrorStreamCaptureIsolation, [&] { return cudaStreamWaitEvent(stream, before); });
  succeed(cudaEventDestroy(before));
  succeed(cudaStreamSynchronize(stream));
}

TEST_F(EmulatedGraph, ARelaxedCaptureLetsOtherCallsPass) {
  begin(cudaStreamCaptureModeRelaxed);
  void* address = nullptr;
  succeed(cudaMalloc(&address, 8));
  succeed(cudaFree(nullptr));
  succeed(end());
  succeed(cudaFree(address));
}

TEST_F(EmulatedGraph, MemoryIsFilledAndPoisonedAtEachLaunch) {
  begin();
  std::byte* p = memory(2);
  succeed(cudaMemcpyAsync(counter, p, 1, cudaMemcpyDeviceToDevice, stream));
  set(p, 3, 2);
  succeed(cudaMemcpyAsync(counter + 1, p, 1, cudaMemcpyDeviceToDevice, stream));
  succeed(cudaFreeAsync(p, stream));
  EXPECT_EQ(memory(2), p);  // memory freed in the capture is reused
  succeed(cudaFreeAsync(p, stream));
  succeed(end());
  expect_status(cudaMemsetAsync(p, 0, 2, stream), cudaErrorInvalidValue);
  for (int i = 0; i < 2; ++i) {
    set(counter, 0, 4);
    succeed(cudaGraphLaunch(executable, stream));
    EXPECT_EQ(read(counter, 2), (std::vector<int>{0xff, 3}));
    EXPECT_EQ(read(p, 2), std::vector<int>(2, 0xff));
  }
}

TEST_F(EmulatedGraph, WhatALaunchLeavesIsFreedBeforeTheNext) {
  begin();
  std::byte* p = memory(2);
  set(p, 3, 2);
  succeed(end());
  succeed(cudaGraphLaunch(executable, stream));
  EXPECT_EQ(read(p, 2), std::vector<int>(2, 3));
  expect_status(cudaGraphLaunch(executable, stream), cudaErrorInvalidValue);
  succeed(cudaFreeAsync(p, stream));
  succeed(cudaGraphLaunch(executable, stream));
  succeed(cudaFreeAsync(p, stream));
}

TEST_F(EmulatedGraph, LaunchesFreeWhereTheyAreAskedTo) {
  begin();
  set(memory(2), 3, 2);
  succeed(end(cudaGraphInstantiateFlagAutoFreeOnLaunch));
  for (int i = 0; i < 2; ++i) succeed(cudaGraphLaunch(executable, stream));
}

TEST_F(EmulatedGraph, DoesNotFreeWhatWasThereBefore) {
  std::byte* p = memory(2);
  begin();
  expect_status(cudaFreeAsync(p, stream), cudaErrorInvalidValue);
  succeed(end());
  succeed(cudaFreeAsync(p, stream));
}

TEST_F(EmulatedGraph, GivesItsMemoryBack) {
  succeed(cudaStreamSynchronize(stream));
  const std::size_t before = Memory::instance().usage(0).used;
  begin();
  succeed(cudaFreeAsync(memory(1000), stream));
  succeed(end());
  succeed(cudaGraphLaunch(executable, stream));
  EXPECT_GT(Memory::instance().usage(0).used, before);
  succeed(cudaGraphExecDestroy(executable));
  executable = nullptr;
  succeed(cudaStreamSynchronize(stream));
  EXPECT_EQ(Memory::instance().usage(0).used, before);
}

}  // namespace
}  // namespace reelmesh::emulated
