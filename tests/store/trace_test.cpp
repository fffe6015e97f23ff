#include "store/trace.hpp"

#include <sys/resource.h>

#include <chrono>
#include <csignal>

#include "store/hdf5.hpp"
#include "store_support.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

std::int64_t steady_ns() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

class Trace : public testing::Test {
 protected:
  Trace() : folder(world) {}

  RankRecord mine() const {
    RankRecord record{"nœud-" + std::to_string(world.rank()), "all", "cpu", 2, 4096, 8192};
    for (std::size_t i = 0; i < purposes; ++i) {
      const auto number = static_cast<std::int64_t>(i);
      record.host_memory.peak[i] = 100 * world.rank() + 10 * number;
      record.host_memory.at_peak[i] = number;
      record.device_memory.peak[i] = record.host_memory.peak[i] + 1;
      record.device_memory.at_peak[i] = 7 + number;
    }
    record.padded_products = 10 + world.rank();
    record.kernels = "attention: own kernels; products: a library";
    return record;
  }

  comm::Group world = test::world();
  TestFolder folder;
};

// All ranks of the test are on one machine and share its steady clock, so the true offset is known.
TEST_F(Trace, ClockOffsetIsThatOfTheSharedClock) {
  const std::int64_t start_of_mine = steady_ns() - trace::now_ns();
  const std::int64_t start_of_first = std::stoll(world.broadcast(std::to_string(start_of_mine), 0));
  const std::int64_t offset = clock_offset_ns(world);
  if (world.rank() == 0) {
    EXPECT_EQ(offset, 0);
  }
  EXPECT_NEAR(static_cast<double>(offset), static_cast<double>(start_of_mine - start_of_first),
              5e6);
}

TEST_F(Trace, HoldsTheSpansOfAllRanksOnOneClock) {
  // Spans are recorded when they end, so the inner one comes first. Rank 1 has no spans; rank r has
  // r + 2, rank 0 has 3.
  std::vector<trace::Span> spans;
  const std::int64_t offset = clock_offset_ns(world);
  const std::int64_t base = 1000000000000 - offset;  // 10^12 on the clock of rank 0
  if (world.rank() != 1) {
    spans.push_back({"denoise_step", "compute", 0, 3, -1, base + 100, 50, 7, 1LL << 40});
    spans.push_back({"load", "file", -1, -1, -1, base + 20, 10, 0, 0});
    spans.push_back({"denoise", "compute", 0, -1, -1, base + 100, 500, 9, 5});
    spans.back().name = "denoise";
    for (int i = 1; i < world.rank(); ++i) spans.push_back({"more", "x", i, i, i, base + 700 + i});
  }
  write_trace(world, folder.path(), mine(), spans);
  EXPECT_EQ(folder.listing(), "trace.h5");
  EXPECT_EQ(run_on_rank_0(world, "/usr/bin/python3 " REELMESH_SOURCE "/tests/store/read_trace.py " +
                                     (folder.path() / "trace.h5").string() + " " +
                                     std::to_string(world.size())),
            0);
}

TEST_F(Trace, WithoutSpansHasTheRanksAllTheSame) {
  write_trace(world, folder.path(), mine(), {});
  write_trace(world, folder.path(), mine(), {});  // again, replacing
  const hdf5::File file = hdf5::open_for_reading(folder.path() / "trace.h5");
  for (const auto& [name, rows] : {std::pair("spans", 0), std::pair("ranks", world.size())}) {
    const hdf5::Dataset dataset = hdf5::open_dataset(file.get(), name);
    const hdf5::Dataspace space(H5Dget_space(dataset.get()));
    EXPECT_EQ(H5Sget_simple_extent_npoints(space.get()), rows) << name;
  }
}

TEST_F(Trace, FailureIsTheSameOnAllRanksAndLeavesNothing) {
  EXPECT_EQ(status_of([&] { write_trace(world, folder.path() / "no", mine(), {}); }),
            Status::cannot_create);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 50000;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<trace::Span> spans(1000);
  const Status status = status_of([&] { write_trace(world, folder.path(), mine(), spans); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status, Status::io);
  EXPECT_EQ(folder.listing(), "");
}

}  // namespace
}  // namespace reelmesh
