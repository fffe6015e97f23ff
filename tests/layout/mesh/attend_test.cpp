// Attention on every mesh gives the bits of one rank.
#include "layout/mesh/attend_case.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::AttendCase;
using reelmesh::test::Dice;
using reelmesh::test::random_partition;

void check(const AttendCase& c, unsigned seed) { test::check_attend(c, seed, test::world()); }

TEST(Attend, AnyMeshAndAnyCutsGiveTheBitsOfOneRank) {
  const int ranks = test::world().size();
  for (unsigned seed = 0; seed < 40; ++seed) {
    Dice dice(seed);
    const Shape video{dice.roll(1, 4), dice.roll(1, 9), dice.roll(1, 9)};
    const AttendCase c{
        {random_partition(dice, {dice.roll(1, 40)}, ranks), random_partition(dice, video, ranks)},
        {dice.roll(1, 2), dice.roll(1, 7), 8 * dice.roll(1, 3), dice.one_of(test::divisors(ranks))},
        seed % 2 == 0 ? DType::float32 : DType::bfloat16};
    check(c, seed);
  }
}

// More keys than fit in one part, with a remainder; parts cross boundaries of boxes and segments.
TEST(Attend, KeysInManyParts) {
  const int ranks = test::world().size();
  for (unsigned seed = 100; seed < 102; ++seed) {
    Dice dice(seed);
    for (const int ring : test::divisors(ranks)) {
      const Shape video{3, 23, dice.roll(30, 40)};
      check({{random_partition(dice, {226}, ranks), random_partition(dice, video, ranks)},
             {1, 3, 16, ring},
             seed % 2 == 0 ? DType::float32 : DType::bfloat16},
            seed);
    }
  }
}

TEST(Attend, OneRankMayHoldEverything) {
  const int ranks = test::world().size();
  for (const int ring : test::divisors(ranks)) {
    for (int holder = 0; holder < ranks; ++holder) {
      check(
          {{Layout::on_one_rank({5}, ranks, holder), Layout::on_one_rank({2, 3, 4}, ranks, holder)},
           {2, 3, 8, ring}},
          7);
    }
  }
}

TEST(Attend, WantsPartitionsAndRowsOfEqualLength) {
  const auto world = test::world();
  const Layout tokens = Layout::cut({9}, 0, world.size());
  EXPECT_THROW(Attend(world, {tokens}, {1, 2, 8, world.size() + 1}, DType::float32, {}), Error);
  if (world.size() == 1) return;
  EXPECT_THROW(
      Attend(world, {Layout::replicated({9}, world.size())}, {1, 2, 8, 1}, DType::float32, {}),
      Error);
}

}  // namespace
}  // namespace reelmesh
