// Exchanges of tensors on GPUs: several at once, in CUDA graphs, and rejected arguments.
#include <cstdlib>

#include "comm/group.hpp"
#include "ops/pointwise.hpp"
#include "support/expect_error.hpp"
#include "support/gpu_ranks.hpp"
#include "support/random_tensor.hpp"
#include "tensor/cuda/graph.hpp"

namespace reelmesh::test {
namespace {

using comm::Message;

class ExchangeOnGpu : public RanksTest {
 protected:
  int next() const { return (world.rank() + 1) % world.size(); }
  int previous() const { return (world.rank() + world.size() - 1) % world.size(); }
  // Tensor i that rank r sends.
  Tensor of(int r, int i, std::int64_t n) const {
    return random_tensor({n}, unsigned(100 * i + r));
  }
  Tensor fresh(std::int64_t n) const { return Tensor::empty({n}, DType::float32, device); }
};
INSTANTIATE_TEST_SUITE_P(By, ExchangeOnGpu, transports, transport_name);

// As between the branches of CFG parallelism.
TEST_P(ExchangeOnGpu, SeveralTensorsToOneRank) {
  std::vector<Message> sends, receives;
  for (const std::int64_t n : {3, 0, 100'000, 1}) {
    sends.push_back({next(), of(world.rank(), int(n), n).on(device)});
    receives.push_back({previous(), fresh(n)});
  }
  world.exchange(sends, receives);
  for (const Message& message : receives) {
    const std::int64_t n = message.tensor.numel();
    EXPECT_TRUE(same_bits(message.tensor.on({}), of(previous(), int(n), n)));
  }
}

// More exchanges than may be pending, some of them of host tensors, finished in another order. What
// is sent is freed, and its memory reused, right after begin_exchange().
TEST_P(ExchangeOnGpu, ManyAtOnce) {
  constexpr int count = 50;
  constexpr std::int64_t n = 1000;
  std::vector<comm::PendingMessages> pending;
  std::vector<Tensor> received;
  for (int i = 0; i < count; ++i) {
    const Device where = i % 5 == 3 ? Device{} : device;
    Tensor sent = of(world.rank(), i, n).on(where);
    received.push_back(Tensor::empty({n}, DType::float32, where));
    const Message send{next(), sent}, receive{previous(), received.back()};
    pending.push_back(world.begin_exchange({&send, 1}, {&receive, 1}));
  }
  for (int i = count; i-- > 0;) {
    if (i % 3 != 0) pending[std::size_t(i)].finish();
  }
  EXPECT_EQ(world.max(std::int64_t{world.rank()}), world.size() - 1);  // works meanwhile
  pending.clear();                                                     // finishes the others
  for (int i = 0; i < count; ++i) {
    EXPECT_TRUE(same_bits(received[std::size_t(i)].on({}), of(previous(), i, n))) << i;
  }
}

// The device computes while exchanges are pending; its results are not affected by them.
TEST_P(ExchangeOnGpu, BesideOtherWork) {
  constexpr std::int64_t n = 10'000;
  Tensor x = of(world.rank(), 0, n).on(device), expected = of(world.rank(), 0, n);
  for (int i = 0; i < 5; ++i) {
    const Tensor sent = ops::silu(x), arrived = fresh(n);
    const Message send{next(), sent}, receive{previous(), arrived};
    comm::PendingMessages pending = world.begin_exchange({&send, 1}, {&receive, 1});
    const Tensor beside = ops::silu(sent);
    pending.finish();
    const Tensor y = ops::silu(arrived);
    EXPECT_TRUE(same_bits(beside.on({}), ops::silu(ops::silu(x.on({})))));
    x = y;
    // What arrives was with rank − i − 1 at first.
    const int from = ((world.rank() - i - 1) % world.size() + world.size()) % world.size();
    expected = of(from, 0, n);
    for (int k = 0; k < 2 * (i + 1); ++k) expected = ops::silu(expected);
    EXPECT_TRUE(same_bits(y.on({}), expected)) << i;
  }
}

TEST_P(ExchangeOnGpu, InAGraph) {
  if (GetParam() == Transport::mpi) GTEST_SKIP() << "the host waits for messages of MPI";
  constexpr std::int64_t n = 1000;
  Tensor in = of(world.rank(), 0, n).on(device), out = fresh(n);
  const auto step = [&] {
    Tensor x = in;
    for (int turn = 0; turn < 3; ++turn) {
      const Tensor sent = ops::silu(x), arrived = fresh(n);
      const Message send{next(), sent}, receive{previous(), arrived};
      comm::PendingMessages pending = world.begin_exchange({&send, 1}, {&receive, 1});
      const Tensor beside = ops::silu(sent);
      pending.finish();
      x = ops::silu(arrived);
    }
    out.copy_from(x);
  };
  step();
  const Tensor first = out.on({});
  const cuda::Graph graph(device, step);
  for (int i = 0; i < 3; ++i) {
    in.copy_from(of(world.rank(), i, n));
    graph.replay();
    const Tensor replayed = out.on({});
    EXPECT_TRUE(i > 0 || same_bits(replayed, first));
    step();
    EXPECT_TRUE(same_bits(replayed, out.on({}))) << i;
  }
}

TEST_P(ExchangeOnGpu, OnHostAndDeviceAtOnceIsRefused) {
  const Message on_host{next(), of(0, 0, 4)}, on_device{previous(), fresh(4)};
  expect_error(
      Status::internal,
      [&] {
        world.exchange({&on_host, 1}, {&on_device, 1});
      },
      "of one exchange");
  expect_error(
      Status::internal,
      [&] {
        test::world().exchange({}, {&on_device, 1});
      },
      "without a device");
}

TEST_P(ExchangeOnGpu, GroupsThatAreNotConnectedAreRefused) {
  if (GetParam() == Transport::mpi || world.size() == 1) return;  // nothing to connect
  const Message on_device{previous(), fresh(4)};
  expect_error(
      Status::internal,
      [&] {
        test::world().use_device(device, GetParam(), 100).exchange({}, {&on_device, 1});
      },
      "not connected");
}

TEST(Transport, IsChosenByWhoSharesAGpu) {
  Device device;
  try {
    device = own_device();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const comm::Group world = test::world();
  EXPECT_EQ(world.use_device({}, Transport::nccl, 100).transport(), Transport::automatic);
  EXPECT_EQ(world.use_device(device, Transport::mpi, 100).transport(), Transport::mpi);
  // All ranks share one GPU, or there is one rank.
  const comm::Group shared = world.use_device({0}, Transport::automatic, 100);
  EXPECT_EQ(shared.transport(), Transport::mpi);
  if (world.size() == 1) {  // needs neither transport
    EXPECT_EQ(world.use_device({0}, Transport::nccl, 100).transport(), Transport::nccl);
    return;
  }
  if (world.on_this_host().size() < world.size()) return;
  if (const char* several = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE"); several == nullptr) {
    expect_error(
        Status::unavailable, [&] { world.use_device({0}, Transport::nccl, 100); },
        "device.transport is nccl, but ranks 0 and 1 share the GPU");
  }
  const Device mixed = world.rank() == 0 ? Device{} : device;
  expect_error(
      Status::unavailable, [&] { world.use_device(mixed, Transport::mpi, 100); }, "found a GPU on");
}

}  // namespace
}  // namespace reelmesh::test
