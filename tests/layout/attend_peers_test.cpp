// To which ranks, and in how many messages, attention sends on a mesh; by dry runs, without MPI.
#include <gtest/gtest.h>

#include <set>

#include "layout/attend.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh {
namespace {

// Counts messages of all exchanges.
class Messages final : public TimeModel {
 public:
  double operation(std::string_view, DType, std::int64_t, std::int64_t) const override { return 0; }
  double exchange(int, std::span<const Transfer> transfers) const override {
    count += std::ssize(transfers);
    return 0;
  }
  double exchange_share(int, std::span<const Transfer>) const override { return 0; }

  mutable std::int64_t count = 0;
};

struct Sent {
  std::int64_t peers, messages, shares;
};

// Of a rank with 48 heads and these tokens.
Sent sent(int ring, int rank, const Layout& layout) {
  const auto messages = std::make_shared<Messages>();
  Precision precision{DType::bfloat16, DType::bfloat16, true};
  precision.gpus.of_node = 1;
  Ledger ledger(precision, messages);
  const DryRun dry(ledger);
  const Device device = precision.device();
  const Attend attend(comm::Group::pretended(rank, layout.ranks()), {layout}, {1, 48, 64, ring},
                      DType::bfloat16, device);
  const std::int64_t mine = layout.box(rank).numel();
  const auto tensor = [&](Shape shape) {
    return Tensor::empty(std::move(shape), DType::bfloat16, device);
  };
  attend(
      tensor({mine, 1, 48, 64}),
      [&] {
        return tensor({mine, 1, 2, 48, 64});
      },
      0.3F);
  return {ledger.peers(), messages->count, attend.shares()};
}

// 17,776 tokens on ring × ulysses ranks.
Sent sent(int ring, int ulysses, int rank) {
  return sent(ring, rank, Layout::cut({17776}, 0, ring * ulysses));
}

TEST(AttendPeers, AreThoseOfARowAndOneOfEachOtherRow) {
  std::set<std::int64_t> found;
  for (const auto& [ring, ulysses] : std::vector<std::pair<int, int>>{{6, 6}, {9, 4}, {2, 8}}) {
    for (const int rank : {0, ring * ulysses - 1}) {
      SCOPED_TRACE(fmt::format("ring {} x ulysses {}, rank {}", ring, ulysses, rank));
      const auto [peers, messages, shares] = sent(ring, ulysses, rank);
      EXPECT_EQ(peers, ulysses - 1 + ring - 1);
      // Queries, keys with values, results; then shares of keys with values.
      EXPECT_EQ(messages, 3 * (ulysses - 1) + shares * (ring - 1));
      found.insert(shares);
    }
  }
  // With 2 x 8, keys and values of 8,888 tokens for 6 heads are 13 MiB; with 6 x 6, 5.8 MiB.
  EXPECT_EQ(found, (std::set<std::int64_t>{1, 3}));
}

TEST(AttendPeers, OfOneAxisAreAllRanks) {
  const auto ulysses = sent(1, 8, 3);
  EXPECT_EQ(ulysses.peers, 7);
  EXPECT_EQ(ulysses.messages, (2 + ulysses.shares) * 7);
  const auto ring = sent(8, 1, 3);
  EXPECT_EQ(ring.peers, 7);
  EXPECT_EQ(ring.messages, ring.shares * 7);
}

TEST(AttendPeers, ARowWithoutTokensReceivesNothing) {
  const Layout first = Layout::on_one_rank({600}, 16, 0);
  EXPECT_EQ(sent(2, 0, first).peers, 7);
  EXPECT_EQ(sent(2, 1, first).peers, 1) << "heads of the tokens of rank 0";
  EXPECT_EQ(sent(2, 8, first).peers, 0);
}

}  // namespace
}  // namespace reelmesh
