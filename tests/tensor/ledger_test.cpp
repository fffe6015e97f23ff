// The clock of dry runs: operations follow one another, messages are in transit meanwhile.
#include "tensor/ledger.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {
namespace {

// An operation takes a second per FLOP and 0.01 s per byte, a message a second per byte.
class Simple final : public TimeModel {
 public:
  explicit Simple(double share) : share_(share) {}
  double operation(std::string_view, DType, std::int64_t flops, std::int64_t bytes) const override {
    return static_cast<double>(flops) + 0.01 * static_cast<double>(bytes);
  }
  double exchange(int, std::span<const Transfer> transfers) const override {
    double seconds = 0;
    for (const Transfer& transfer : transfers) seconds += static_cast<double>(transfer.bytes);
    return seconds;
  }
  double exchange_share(int, std::span<const Transfer>) const override { return share_; }

 private:
  double share_;
};

class Clock : public Ledger {
 public:
  explicit Clock(double share) : Ledger(Precision{}, std::make_shared<const Simple>(share)) {}
  double begin(std::vector<Transfer> transfers) { return begin_exchange(0, transfers); }
  void compute(std::int64_t seconds) { note_operation("product", seconds, 0); }
};

TEST(LedgerClock, OperationsAddUpByWhatTakesTheirTime) {
  Clock ledger(0);
  ledger.note_operation("product", 5, 100);
  ledger.note_operation("attention", 7, 0);
  ledger.note_operation("convolution", 1, 0);
  for (const char* kind : {"norm", "group_norm", "group_sums", "copy"}) {
    ledger.note_operation(kind, 0, 200);
  }
  EXPECT_DOUBLE_EQ(ledger.elapsed().computation, 5 + 1 + 7 + 1);
  EXPECT_DOUBLE_EQ(ledger.elapsed().memory, 4 * 2);
  EXPECT_DOUBLE_EQ(ledger.elapsed().network, 0);
  EXPECT_DOUBLE_EQ(ledger.elapsed().total(), 22);
}

TEST(LedgerClock, OperationsHideMessagesThatTheRankTakesNoPartIn) {
  Clock ledger(0);
  ledger.compute(3);
  const double arrival = ledger.begin({{1, 4}, {2, 6}});
  EXPECT_DOUBLE_EQ(arrival, 3 + 10);
  ledger.compute(8);
  EXPECT_DOUBLE_EQ(ledger.elapsed().network, 0) << "they are in transit";
  ledger.wait_until(arrival);
  EXPECT_DOUBLE_EQ(ledger.elapsed().network, 2);
  EXPECT_DOUBLE_EQ(ledger.elapsed().total(), 13);
  ledger.wait_until(arrival);
  EXPECT_DOUBLE_EQ(ledger.elapsed().total(), 13) << "it has arrived";
}

TEST(LedgerClock, MessagesThatNeedTheRankAreNotHidden) {
  Clock ledger(1);
  const double arrival = ledger.begin({{1, 10}});
  ledger.compute(8);
  ledger.wait_until(arrival);
  EXPECT_DOUBLE_EQ(ledger.elapsed().network, 10);
  EXPECT_DOUBLE_EQ(ledger.elapsed().total(), 18);

  Clock half(0.5);
  const double later = half.begin({{1, 10}});
  half.compute(2);
  half.wait_until(later);
  EXPECT_DOUBLE_EQ(half.elapsed().network, 5 + 3) << "half of them is hidden, if there is time";
  EXPECT_DOUBLE_EQ(half.elapsed().total(), 10);
}

TEST(LedgerClock, MessagesQueueOnTheLink) {
  Clock ledger(0);
  const double first = ledger.begin({{1, 10}});
  ledger.compute(4);
  const double second = ledger.begin({{1, 3}});
  EXPECT_DOUBLE_EQ(first, 10);
  EXPECT_DOUBLE_EQ(second, 13) << "after the first, not at 4 + 3";
  ledger.wait_until(second);
  EXPECT_DOUBLE_EQ(ledger.elapsed().total(), 13);
  ledger.compute(7);
  EXPECT_DOUBLE_EQ(ledger.begin({{1, 1}}), 21) << "the link has been free since 13";
}

TEST(LedgerClock, CopiesOfDryRunsTakeTime) {
  Clock ledger(0);
  {
    const DryRun run(ledger);
    note_moved(300);
  }
  note_moved(1000);  // outside
  EXPECT_DOUBLE_EQ(ledger.elapsed().memory, 3);
  EXPECT_EQ(ledger.operations().at("copy").bytes, 300);
}

TEST(LedgerClock, WithoutATimeModelThereIsNoTime) {
  Ledger ledger(Precision{});
  ledger.note_operation("product", 5, 100);
  const std::vector<Transfer> transfers{{1, 10}};
  ledger.wait_until(ledger.begin_exchange(0, transfers));
  EXPECT_EQ(ledger.elapsed().total(), 0);
  EXPECT_EQ(ledger.operations().at("product").flops, 5) << "operations are counted";
}

}  // namespace
}  // namespace reelmesh
