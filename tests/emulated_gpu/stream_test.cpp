#include "emulated_gpu/stream.hpp"

#include <future>

#include "emulated_gpu/device.hpp"

namespace reelmesh::emulated {
namespace {

class EmulatedStream : public EmulatedGpu {
 protected:
  void SetUp() override {
    EmulatedGpu::SetUp();
    succeed(cudaEventCreate(&event));
  }
  void TearDown() override {
    succeed(cudaEventDestroy(event));
    EmulatedGpu::TearDown();
  }
  // Enqueues work that blocks the stream until the gate is opened.
  void block(cudaStream_t where) {
    succeed(enqueue(where, {"gate", [gate = gate.get_future().share()] { gate.wait(); }}));
  }
  void append(cudaStream_t where, int number) {
    succeed(enqueue(where, {"append", [this, number] {
                              const std::scoped_lock lock(mutex);
                              order.push_back(number);
                            }}));
  }

  std::promise<void> gate;
  std::mutex mutex;
  std::vector<int> order;
  cudaEvent_t event = nullptr;
};

TEST_F(EmulatedStream, WorksWhileTheHostGoesOn) {
  block(stream);
  append(stream, 1);
  expect_status(cudaStreamQuery(stream), cudaErrorNotReady);
  succeed(cudaStreamQuery(other));
  EXPECT_TRUE(order.empty());
  gate.set_value();
  succeed(cudaStreamSynchronize(stream));
  EXPECT_EQ(order, std::vector<int>{1});
  succeed(cudaStreamQuery(stream));
}

TEST_F(EmulatedStream, WorksInOrder) {
  std::vector<int> expected;
  for (int i = 0; i < 100; ++i) {
    append(stream, i);
    expected.push_back(i);
  }
  succeed(cudaDeviceSynchronize());
  EXPECT_EQ(order, expected);
}

TEST_F(EmulatedStream, StreamsWaitForEvents) {
  block(stream);
  append(stream, 1);
  succeed(cudaEventRecord(event, stream));
  append(other, 2);
  succeed(cudaStreamWaitEvent(other, event));
  append(other, 3);
  expect_status(cudaEventQuery(event), cudaErrorNotReady);
  gate.set_value();
  succeed(cudaStreamSynchronize(other));
  EXPECT_EQ(std::count(order.begin(), order.end(), 1), 1);
  EXPECT_EQ(order.back(), 3);
}

TEST_F(EmulatedStream, EventsAreMoments) {
  succeed(cudaEventQuery(event));  // never recorded
  succeed(cudaEventRecord(event, stream));
  block(stream);
  succeed(cudaEventSynchronize(event));  // does not wait for later work
  cudaEvent_t end = nullptr, untimed = nullptr;
  succeed(cudaEventCreate(&end));
  succeed(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  succeed(cudaEventRecord(end, stream));
  float passed = -1;
  expect_status(cudaEventElapsedTime(&passed, event, end), cudaErrorNotReady);
  gate.set_value();
  succeed(cudaEventSynchronize(end));
  succeed(cudaEventElapsedTime(&passed, event, end));
  EXPECT_GT(passed, 0);
  expect_status(cudaEventElapsedTime(&passed, event, untimed), cudaErrorInvalidResourceHandle);
  succeed(cudaEventDestroy(end));
  succeed(cudaEventDestroy(untimed));
}

TEST_F(EmulatedStream, HostFunctionsComeInTurnAndMayNotCallCuda) {
  struct Seen {
    cudaStream_t stream;
    std::vector<int>* order;
    std::size_t before = 0;
    cudaError_t status = cudaSuccess;
  } seen{stream, &order};
  append(stream, 1);
  succeed(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        auto* s = static_cast<Seen*>(data);
        s->before = s->order->size();
        s->status = cudaStreamSynchronize(s->stream);
      },
      &seen));
  append(stream, 2);
  succeed(cudaStreamSynchronize(stream));
  EXPECT_EQ(seen.before, 1U);
  expect_status(seen.status, cudaErrorNotPermitted);
}

TEST_F(EmulatedStream, IsEmptyWhenItIsDestroyed) {
  cudaStream_t third = nullptr;
  succeed(cudaStreamCreate(&third));
  for (int i = 0; i < 10; ++i) append(third, i);
  succeed(cudaStreamDestroy(third));
  EXPECT_EQ(order.size(), 10U);
  expect_status(cudaStreamSynchronize(third), cudaErrorInvalidResourceHandle);
  expect_status(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  expect_status(cudaGetLastError(), cudaSuccess);
}

TEST_F(EmulatedStream, ExceptionsOfWorkEndTheProcess) {
  EXPECT_DEATH(
      {
        enqueue(stream, {"some kernel", [] { throw std::runtime_error("no reason"); }});
        cudaStreamSynchronize(stream);
      },
      "some kernel failed: no reason");
}

bool work_is_late() {
  cudaStream_t stream = nullptr;
  if (cudaStreamCreate(&stream) != cudaSuccess) return false;
  std::atomic<int> done = 0;
  for (int i = 0; i < 20; ++i) {
    if (enqueue(stream, {"work", [&] { ++done; }}) != cudaSuccess) return false;
  }
  const int at_once = done;
  return cudaStreamSynchronize(stream) == cudaSuccess && at_once < 20 && done == 20;
}

TEST(EmulatedDevice, WorkMayBeLate) {
  EXPECT_WITH_SETTING("REELMESH_EMULATED_GPU_DELAY", "20000", work_is_late());
}

}  // namespace
}  // namespace reelmesh::emulated
