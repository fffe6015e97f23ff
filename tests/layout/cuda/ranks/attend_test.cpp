// Attention on the GPUs of several ranks has the same bits as on one rank.
#include <set>

#include "layout/mesh/attend_case.hpp"
#include "support/gpu_ranks.hpp"
#include "support/long.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::test {
namespace {

class AttendOnGpu : public RanksTest {};
INSTANTIATE_TEST_SUITE_P(By, AttendOnGpu, transports, transport_name);

TEST_P(AttendOnGpu, AnyMeshAndAnyCuts) {
  const int ranks = world.size();
  for (unsigned seed = 0; seed < 6; ++seed) {
    Dice dice(seed);
    const Shape video{dice.roll(1, 3), dice.roll(1, 7), dice.roll(1, 7)};
    check_attend(
        {{random_partition(dice, {dice.roll(1, 30)}, ranks), random_partition(dice, video, ranks)},
         {dice.roll(1, 2), dice.roll(1, 5), 8 * dice.roll(1, 3), dice.one_of(divisors(ranks))},
         seed % 2 == 0 ? DType::float32 : DType::bfloat16},
        seed, world, device);
  }
}

// With the kernels that take keys in parts, and with the fused one that needs all keys at once.
TEST_P(AttendOnGpu, ManyKeys) {
  if (GetParam() == Transport::mpi && !tests_are_long()) GTEST_SKIP() << "only in tests/long";
  const int ranks = world.size();
  struct By {
    DType dtype;
    bool own;
    std::int64_t heads;
  };
  for (const By& by : {By{DType::float32, false, 1}, By{DType::bfloat16, true, 1},
                       By{DType::bfloat16, false, 7}}) {
    for (const int ring : divisors(ranks)) {
      Dice dice(100);
      check_attend(
          {{random_partition(dice, {26}, ranks), random_partition(dice, {2, 20, 27}, ranks)},
           {1, by.heads, 8, ring},
           by.dtype,
           {.own_attention = by.own}},
          1, world, device);
    }
  }
}

// The ranks of these tests are on one host.
TEST_P(AttendOnGpu, HeadsAreInSharesOfSixWavesAlsoInADryRun) {
  const std::int64_t ranks = world.size(), multiprocessors = reelmesh::multiprocessors(device);
  const std::vector<Layout> tokens{Layout::cut({1106}, 0, world.size())};
  ASSERT_GT(multiprocessors, 0);
  std::set<std::int64_t> found;
  for (const std::int64_t heads : {ranks, 2 * ranks, 7 * ranks * multiprocessors}) {
    for (const DType dtype : {DType::bfloat16, DType::float32}) {
      SCOPED_TRACE(fmt::format("{} heads, {}", heads, name_of(dtype)));
      const AttentionGeometry geometry{2, heads, 8, 1};
      const Attend attend(world, tokens, geometry, dtype, device);
      const bool shared = ranks > 1 && ops::uses_fused_attention(device, dtype, 1106, 8, {});
      const std::int64_t tiles = 2 * 9;
      EXPECT_EQ(attend.shares(),
                shared ? Attend::head_shares(heads / ranks, tiles, multiprocessors, true, 0) : 1);
      found.insert(attend.shares());
      if (!shared) continue;
      Precision precision{dtype, dtype, true};
      precision.gpus.multiprocessors = static_cast<int>(multiprocessors);
      const auto planned = [&](int of_node) {
        precision.gpus.of_node = of_node;
        Ledger ledger(precision);
        const DryRun dry(ledger);
        const auto group = comm::Group::pretended(world.rank(), world.size());
        return Attend(group, tokens, geometry, dtype, precision.device()).shares();
      };
      EXPECT_EQ(planned(world.size()), attend.shares());
      const std::int64_t message = 1106 / ranks * 2 * 2 * (heads / ranks) * 8 * size_of(dtype);
      EXPECT_EQ(planned(world.size() - 1),
                Attend::head_shares(heads / ranks, tiles, multiprocessors, false, message));
    }
  }
  const bool fused = ops::uses_fused_attention(device, DType::bfloat16, 1106, 8, {});
  if (ranks > 1 && fused) {
    EXPECT_GE(found.size(), 2U);
  }
}

}  // namespace
}  // namespace reelmesh::test
