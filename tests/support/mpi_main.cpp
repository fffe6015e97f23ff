// The main of test programs that run under mpirun. A failure on any rank is printed by that rank at
// once and fails the test on all ranks; the program's result is the same everywhere.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "comm/group.hpp"

namespace {

class RankPrinter : public testing::EmptyTestEventListener {
 public:
  explicit RankPrinter(int rank) : rank_(rank) {}

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cerr << "rank " << rank_ << ": " << (result.file_name() ? result.file_name() : "?") << ":"
              << result.line_number() << ": " << result.summary() << std::endl;
  }
  int rank_;
};

// A failure on one rank only would leave the others waiting in the next collective: after each test
// the ranks agree on its outcome.
class Agreement : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& info) override {
    const bool failed = info.result()->Failed();
    const auto anywhere = reelmesh::comm::Group::world().max(std::int64_t{failed});
    if (anywhere != 0) any_failed = true;
  }

 public:
  static inline bool any_failed = false;
};

}  // namespace

int main(int argc, char** argv) {
  const reelmesh::comm::Environment mpi;
  testing::InitGoogleTest(&argc, argv);
  const auto world = reelmesh::comm::Group::world();
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) delete listeners.Release(listeners.default_result_printer());
  if (world.size() > 1) listeners.Append(new RankPrinter(world.rank()));
  listeners.Append(new Agreement);
  const int result = RUN_ALL_TESTS();
  return Agreement::any_failed ? 1 : result;
}
