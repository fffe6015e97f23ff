// Calls that are captured once as a CUDA graph, then replayed.
#include "layout/repeated_call.hpp"

#include "base/trace.hpp"
#include "ops/pointwise.hpp"
#include "support/gpu_ranks.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::test {
namespace {

class RepeatedCallOnGpu : public OnOwnDevice<testing::Test> {
 protected:
  void SetUp() override {
    OnOwnDevice::SetUp();
    if (IsSkipped()) return;
    const comm::Group world = test::world();
    for (int rank = 0; rank < world.size(); ++rank) {
      if (const comm::Group alone = world.range(rank, 1); alone.member()) self = alone;
    }
    x = Tensor::empty({64}, DType::float32, device);
  }
  // Checks the results of several calls, each with another x.
  void expect_squares(RepeatedCall& call) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
      const Tensor values = random_tensor({64}, seed);
      x.copy_from(values);
      EXPECT_TRUE(same_bits(call().front().on({}), ops::multiply(values, values))) << seed;
    }
  }
  comm::Group self;
  Tensor x;
};

TEST_F(RepeatedCallOnGpu, IsRecordedOnce) {
  int calls = 0;
  RepeatedCall squares(device, self, self.capturable(), [&] {
    ++calls;
    return std::vector{ops::multiply(x, x)};
  });
  expect_squares(squares);
  EXPECT_EQ(calls, 2);
}

TEST_F(RepeatedCallOnGpu, IsNotCapturedIfItSynchronizes) {
  int calls = 0;
  RepeatedCall squares(device, self, self.capturable(), [&] {
    ++calls;
    synchronize(device);
    return std::vector{ops::multiply(x, x)};
  });
  expect_squares(squares);
  EXPECT_EQ(calls, 5);  // 4, and one failed capture
}

TEST_F(RepeatedCallOnGpu, IsNotCapturedIfMemoryIsLacking) {
  int calls = 0;
  RepeatedCall squares(device, self, self.capturable(), [&] {
    if (++calls == 2) fail(Status::unavailable, "no memory left");
    return std::vector{ops::multiply(x, x)};
  });
  expect_squares(squares);
  EXPECT_EQ(calls, 5);  // 4, and one failed capture
}

TEST_F(RepeatedCallOnGpu, CountsOperationsOfEveryCall) {
  RepeatedCall call(device, self, self.capturable(), [&] {
    trace::recorder().flops += 7;
    return std::vector{ops::multiply(x, x)};
  });
  const std::int64_t before = trace::recorder().flops;
  for (int i = 0; i < 5; ++i) call();
  EXPECT_EQ(trace::recorder().flops - before, 35);
}

class RepeatedCallOfRanks : public RanksTest {};
INSTANTIATE_TEST_SUITE_P(Transports, RepeatedCallOfRanks, transports, transport_name);

// NCCL requires it: a message must be captured on both sides or on none.
TEST_P(RepeatedCallOfRanks, IsNotCapturedIfThatFailsOnOneOfThem) {
  const int ranks = world.size(), next = (world.rank() + 1) % ranks,
            previous = (world.rank() + ranks - 1) % ranks;
  Tensor x = Tensor::empty({64}, DType::float32, device);
  int calls = 0;
  RepeatedCall squares(device, world, world.capturable(), [&] {
    Tensor theirs = ranks == 1 ? x : Tensor::empty(x.shape(), x.dtype(), device);
    const comm::Message send{next, x}, receive{previous, theirs};
    if (ranks > 1) world.exchange({&send, 1}, {&receive, 1});
    if (++calls == 2 && world.rank() == 0 && world.capturable()) {
      fail(Status::unavailable, "no memory left");
    }
    return std::vector{ops::multiply(theirs, theirs)};
  });
  const auto values = [](int rank, unsigned seed) {
    return random_tensor({64}, 100 * seed + static_cast<unsigned>(rank));
  };
  for (unsigned seed = 1; seed <= 4; ++seed) {
    x.copy_from(values(world.rank(), seed));
    const Tensor theirs = values(previous, seed);
    EXPECT_TRUE(same_bits(squares().front().on({}), ops::multiply(theirs, theirs))) << seed;
  }
  EXPECT_EQ(calls, world.capturable() ? 5 : 4);
}

}  // namespace
}  // namespace reelmesh::test
