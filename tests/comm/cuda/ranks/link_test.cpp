// The link between GPUs: what its connections take of their memory, and how fast messages are, from
// the host and in a CUDA graph. tests/gpu/node picks the lines.
#include <chrono>

#include "base/system.hpp"
#include "comm/group.hpp"
#include "support/gpu_ranks.hpp"
#include "support/random_tensor.hpp"
#include "support/test_device.hpp"
#include "tensor/connection_memory.hpp"
#include "tensor/cuda/graph.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::test {
namespace {

using comm::Message;

class LinkOfGpus : public OnOwnDevice<testing::Test> {
 protected:
  void SetUp() override {
    OnOwnDevice::SetUp();
    if (IsSkipped()) return;
    if (world.size() == 1) GTEST_SKIP() << "one rank has no link";
    const std::string why = why_no_shared_nccl(world, device);
    if (!why.empty()) GTEST_SKIP() << why;
  }
  // Not destroyed: as in RanksTest.
  comm::Group connected() const {
    static auto& made = *new std::vector<comm::Group>;
    return made.emplace_back(world.use_device(device, Transport::nccl, 100).connected());
  }
  bool has_own_gpu() const {
    std::vector<std::string> gpus = world.all_gather(host_name() + " " + pci_bus(device));
    std::ranges::sort(gpus);
    return std::ranges::adjacent_find(gpus) == gpus.end();
  }
  void print(const std::string& line) const {
    if (world.rank() != 0) return;
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }
  std::int64_t unused() const {
    cuda::synchronize(device);
    return -world.max(-unused_device_memory(device));  // of the rank that has least
  }

  const comm::Group world = test::world();
};

// Every rank to every other one at once.
void exchange_all(const comm::Group& group, const std::vector<Tensor>& sent,
                  const std::vector<Tensor>& arrived) {
  std::vector<Message> sends, receives;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    sends.push_back({rank, sent[std::size_t(rank)]});
    receives.push_back({rank, arrived[std::size_t(rank)]});
  }
  group.exchange(sends, receives);
}

TEST_F(LinkOfGpus, ConnectionsTakeNoMoreMemoryThanPlanned) {
  const std::int64_t before = unused();
  const comm::Group group = connected();
  const std::int64_t with_communicator = unused();
  std::vector<Tensor> sent, arrived;
  constexpr std::int64_t n = 1 << 18;
  for (int rank = 0; rank < group.size(); ++rank) {
    sent.push_back(random_tensor({n}, unsigned(rank)).on(device));
    arrived.push_back(Tensor::empty({n}, DType::float32, device));
  }
  const std::int64_t with_tensors = unused();
  exchange_all(group, sent, arrived);
  const std::int64_t after = unused();
  const std::int64_t communicator = before - with_communicator, links = with_tensors - after;
  const int near = world.on_this_host().size() - 1;
  const std::int64_t planned = connection_bytes(near, world.size() - 1 - near, false);
  print(
      fmt::format("memory: {} ranks: a communicator {} MiB, connections with all others {} MiB; "
                  "a plan has {} MiB",
                  world.size(), communicator >> 20, links >> 20, planned >> 20));
  if (has_own_gpu()) {  // beside them stand small things, such as events
    EXPECT_LE((communicator + links) >> 20, planned >> 20);
  }
}

TEST_F(LinkOfGpus, IsAsFastInAGraph) {
  const comm::Group group = connected();
  const std::int64_t n = size(1 << 12, 16 << 20);  // of float32, for each other rank
  const int others = world.size() - 1;
  constexpr int turns = 10;
  std::vector<Tensor> sent, arrived, expected;
  for (int rank = 0; rank < group.size(); ++rank) {
    const unsigned from = unsigned(1000 * world.rank() + rank);
    sent.push_back(repeated_random_tensor({n}, from, DType::float32, 1.0F, device));
    arrived.push_back(Tensor::zeros({n}, DType::float32, device));
    expected.push_back(repeated_random_tensor({n}, unsigned(1000 * rank + world.rank()),
                                              DType::float32, 1.0F, device));
  }
  const auto exchanges = [&] {
    for (int turn = 0; turn < turns; ++turn) exchange_all(group, sent, arrived);
  };
  const auto seconds = [&](const auto& call) {
    cuda::synchronize(device);
    world.max(std::int64_t{0});  // all begin together
    const auto start = std::chrono::steady_clock::now();
    call();
    cuda::synchronize(device);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return world.max(taken.count());
  };
  exchanges();  // connects
  const double eager = std::min(seconds(exchanges), seconds(exchanges));
  const cuda::Graph graph(device, exchanges);
  graph.replay();
  for (Tensor& tensor : arrived) cuda::fill_zero(device, tensor.address_on(device), tensor.bytes());
  const double replayed =
      std::min(seconds([&] { graph.replay(); }), seconds([&] { graph.replay(); }));
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == world.rank()) continue;
    EXPECT_TRUE(same_bits(arrived[std::size_t(rank)].on({}), expected[std::size_t(rank)].on({})));
  }
  const double bytes = 4.0 * double(n) * others * turns;
  print(
      fmt::format("link: {} ranks, {} MiB to each other one: {:.4g} GB/s each way, in a graph "
                  "{:.4g} GB/s",
                  world.size(), (4 * n) >> 20, 1e-9 * bytes / eager, 1e-9 * bytes / replayed));
#ifndef REELMESH_EMULATED_GPU
  EXPECT_LT(replayed, 1.2 * eager);
#endif
}

}  // namespace
}  // namespace reelmesh::test
