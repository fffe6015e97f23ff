// What the ranks of a host need together, beside what it has.
#include "job/host_memory.hpp"

#include "support/expect_error.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using test::expect_error;

// Equal ranks, each with this much in memory while it denoises.
MemoryPlan memory_of(int ranks, const StageMemory& denoise) {
  MemoryPlan memory;
  memory.ranks.assign(std::size_t(ranks), {.denoise = denoise});
  return memory;
}

TEST(HostMemory, OfRanksWithGpusIsCheckedToo) {
  const comm::Group& world = test::world();
  const std::int64_t too_much = 2 * (host_memory().with_swap / world.size());
  // Weights in the memory of GPUs are not the host's.
  MemoryPlan memory = memory_of(world.size(), {.weights = too_much, .host = 1});
  memory.host_program = 1;
  EXPECT_NO_THROW(require_host_memory(world, memory, 1));
  for (RankMemory& rank : memory.ranks) rank.denoise.host = too_much;
  const std::string together =
      fmt::format("{} rank{} need ", world.size(), world.size() == 1 ? "" : "s");
  expect_error(
      Status::unavailable, [&] { require_host_memory(world, memory, 1); }, together,
      " together, the host has ", "not of GPUs; a rank needs up to ",
      "fewer ranks on each or smaller clips");
  memory = memory_of(world.size(), {.weights = too_much});
  expect_error(
      Status::unavailable, [&] { require_host_memory(world, memory, 1); }, together,
      "numerics.dtype = bfloat16 or smaller clips");
}

}  // namespace
}  // namespace reelmesh
