// Attention on the GPUs of several ranks has the same bits as on one rank.
#include <set>

#include "layout/mesh/attend_case.hpp"
#include "support/gpu_ranks.hpp"
#include "support/long.hpp"

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
                       By{DType::bfloat16, false, 3}}) {
    for (const int ring : std::set{1, ranks}) {
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

}  // namespace
}  // namespace reelmesh::test
