// main() of test programs that run under mpirun, with several groups of ranks in one launch:
//
//   mpirun -n 8 test_mesh --ranks=1,2,3,4,5,6,7,8 [arguments of GoogleTest]
//
// runs all tests on groups of 1 to 8 ranks (without --ranks: one group of all ranks). Groups run at
// the same time where they fit into the launch. A failure on any rank is printed by that rank at
// once and fails the test on its group; the exit status is the same on all ranks. If a rank has
// left a test in which others still wait, the launch is ended.
//
// REELMESH_TEST_AMX=plain: ops compute as on a processor with AMX, by its plain kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "layout/weight_stream.hpp"
#include "ops/amx.hpp"
#include "ops/products.hpp"
#include "support/groups.hpp"
#include "support/ranks.hpp"

namespace reelmesh::test {
namespace {

comm::Group group;

}  // namespace

const comm::Group& world() { return group; }

}  // namespace reelmesh::test

namespace {

using reelmesh::comm::Group;
using reelmesh::test::group;

std::string who() { return fmt::format("rank {} of {}", group.rank(), group.size()); }

class RankPrinter : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    // In one piece, as other ranks print theirs at the same time.
    const char* file = result.file_name() != nullptr ? result.file_name() : "?";
    std::cerr << fmt::format("{}: {}:{}: {}\n", who(), file, result.line_number(),
                             result.summary());
  }
};

// If one rank alone failed, the others would wait in the next collective. After each test all ranks
// of the group therefore agree on the result. The barrier before is not that of any test.
class Agreement : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& info) override {
    const bool failed = info.result()->Failed();
    const double limit = info.result()->HasFatalFailure() ? seconds_alone : 1e9;
    if (!reelmesh::test::wait_asleep(ends_of_tests, limit)) {
      std::cerr << "FAILED alone on " << who() << ": " << info.test_suite_name() << "."
                << info.name() << "; other ranks are still in this test, so the launch is ended"
                << std::endl;
      reelmesh::comm::abort_all(reelmesh::Status::internal);
    }
    if (group.max(std::int64_t{failed}) == 0) return;
    any_failed = true;
    if (group.rank() == 0) {
      std::cerr << "FAILED on " << group.size() << " ranks: " << info.test_suite_name() << "."
                << info.name() << std::endl;
    }
  }

  static constexpr double seconds_alone = 5;

 public:
  static inline bool any_failed = false;
  static inline Group ends_of_tests;  // the ranks of the group
};

// Parses "--ranks=1,2,4" and removes it from the arguments; without it: {all}.
std::vector<int> rank_counts(int& argc, char** argv, int all) {
  std::vector<int> counts;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--ranks=")) continue;
    std::istringstream list(word.substr(word.find('=') + 1));
    for (std::string count; std::getline(list, count, ',');) counts.push_back(std::stoi(count));
    std::copy(argv + i + 1, argv + argc, argv + i);
    --argc;
    break;
  }
  if (counts.empty()) counts.push_back(all);
  return counts;
}

}  // namespace

int main(int argc, char** argv) {
  const reelmesh::comm::Environment mpi;
  const Group launch = Group::world();
  const std::vector<int> counts = rank_counts(argc, argv, launch.size());
  if (std::ranges::max(counts) > launch.size()) {
    std::cerr << "--ranks names more ranks than the " << launch.size() << " of the launch\n";
    return 64;
  }
  testing::InitGoogleTest(&argc, argv);
  reelmesh::wrong_order_is_error = true;
  if (std::getenv("REELMESH_TEST_AMX") != nullptr) {
    // oneDNN's convolutions in bfloat16 need AVX-512.
    if (reelmesh::ops::has_bfloat16_products()) {
      reelmesh::ops::amx::use_plain_kernels(true);
    } else if (launch.rank() == 0) {
      std::cout << "no AVX-512: tested without AMX's plain kernels\n";
    }
  }
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  // Only rank 0 prints the progress of tests; every rank prints its failures.
  if (launch.rank() != 0) delete listeners.Release(listeners.default_result_printer());
  if (launch.size() > 1) listeners.Append(new RankPrinter);
  listeners.Append(new Agreement);
  bool failed = false;
  for (const auto& round : reelmesh::test::pack_groups_into_rounds(counts, launch.size())) {
    int first = 0, color = -1;
    for (const std::size_t i : round) {
      if (launch.rank() >= first && launch.rank() < first + counts[i]) color = int(i);
      first += counts[i];
    }
    group = launch.split(color);
    Agreement::ends_of_tests = launch.split(color);
    if (group.member()) failed = RUN_ALL_TESTS() != 0 || failed;
    group = Agreement::ends_of_tests = {};
    reelmesh::test::wait_asleep(launch);
  }
  failed = failed || Agreement::any_failed;
  return launch.max(std::int64_t{failed}) != 0 ? 1 : 0;
}
