#include "store/trace.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>

#include "base/log.hpp"
#include "comm/group_values.hpp"
#include "store/hdf5.hpp"
#include "store/saved_trace.hpp"
#include "store/trace_counters.hpp"
#include "store/trace_file.hpp"
#include "store/trace_parts.hpp"
#include "store_support.hpp"
#include "support/ranks.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh {
namespace {

std::int64_t steady_ns() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

class Trace : public testing::Test {
 protected:
  Trace() : folder(world) {}
  void SetUp() override {
    trace::recorder() = {};
    trace::recorder().level = trace::Level::ops;
  }
  void TearDown() override { trace::recorder() = {}; }

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
    record.memory_limit_bytes = std::int64_t{1} << 40;
    record.predicted_memory_bytes = 1000 + world.rank();
    record.peak_flops_per_s = 1.5e12;
    record.peak_memory_bytes_per_s = 2.5e9;
    return record;
  }
  // Without the waits of its beginning, which depend on the machine.
  std::unique_ptr<TraceWriter> writer() const {
    trace::recorder().stage = trace::spans::prepare.name;
    auto made =
        std::make_unique<TraceWriter>(world, folder.path(), "ops", [this] { return mine(); });
    trace::recorder().stage = "";
    return made;
  }
  static void forget_waits() {
    std::erase_if(trace::recorder().spans, [](const trace::Span& span) {
      return span.name == trace::spans::wait.name || span.name == trace::spans::write_trace.name;
    });
  }
  // Spans as they are recorded: when they end, so the inner one comes first. Rank 1 has none; rank
  // r has r + 2, rank 0 has 3.
  void record_spans(std::int64_t base) const {
    if (world.rank() == 1) return;
    std::vector<trace::Span>& spans = trace::recorder().spans;
    spans.push_back({"denoise_step", "compute", 0, 3, -1, base + 100, 50, 7, 1LL << 40, 12});
    spans.push_back({"load", "file", -1, -1, -1, base + 20, 10, 0, 0, 0});
    spans.push_back({"denoise_steps", "compute", 0, -1, -1, base + 100, 500, 9, 5, 0});
    for (int i = 1; i < world.rank(); ++i) {
      spans.push_back({"exchange", "exchange", i, i, i, base + 700 + i});
    }
  }
  // The present time of rank 0 on this rank's clock.
  std::int64_t now_on_first_rank() const {
    const std::int64_t now = comm::broadcast_value(world, trace::now_ns(), 0);
    return now - clock_offset_ns(world);
  }
  // Two messages of 8 bytes to the next rank.
  void exchange() const {
    std::vector<comm::Message> sends, receives;
    for (int i = 0; i < 2; ++i) {
      sends.push_back({(world.rank() + 1) % world.size(), Tensor::zeros({8}, DType::uint8)});
      receives.push_back(
          {(world.rank() + world.size() - 1) % world.size(), Tensor::zeros({8}, DType::uint8)});
    }
    world.exchange(sends, receives);
  }
  // Compares trace.h5 with `times` times what a test has recorded on each rank. → 0 if it agrees.
  int read_trace(int times, bool complete) const {
    return run_on_rank_0(world, "/usr/bin/python3 " REELMESH_SOURCE "/tests/store/read_trace.py " +
                                    (folder.path() / "trace.h5").string() + " " +
                                    std::to_string(world.size()) + " " + std::to_string(times) +
                                    (complete ? " complete" : ""));
  }

  comm::Group world = test::world();
  TestFolder folder;
};

// All ranks of the test are on one machine and share its steady clock, so the true offset is known.
TEST_F(Trace, ClockOffsetIsThatOfTheSharedClock) {
  const std::int64_t start_of_mine = steady_ns() - trace::now_ns();
  const std::int64_t start_of_first = comm::broadcast_value(world, start_of_mine, 0);
  const std::int64_t offset = clock_offset_ns(world);
  if (world.rank() == 0) {
    EXPECT_EQ(offset, 0);
  }
  EXPECT_NEAR(static_cast<double>(offset), static_cast<double>(start_of_mine - start_of_first),
              5e6);
  EXPECT_TRUE(trace::recorder().messages.empty());
  EXPECT_EQ(trace::recorder().bytes_sent, 0);
}

TEST(TraceClock, AnOffsetIsAddedAsLongAsThereIsOneComparison) {
  const TraceClock clock{1000, -300, 1000, -300};
  EXPECT_EQ(clock.drift_ppb(), 0);
  for (const std::int64_t own : {0, 1000, 5000}) EXPECT_EQ(clock.on_first_rank(own), own - 300);
}

// Its clock shows 7 s when that of rank 0 shows 0, and runs 50 ppm fast.
TEST(TraceClock, CorrectsAClockThatRunsFast) {
  constexpr std::int64_t second = 1'000'000'000, day = 86400 * second;
  const auto own = [](std::int64_t first) { return 7 * second + first + first / 20000; };
  const std::int64_t start = 10 * second, end = 3 * day;
  const TraceClock clock{own(start), start - own(start), own(end), end - own(end)};
  EXPECT_NEAR(static_cast<double>(clock.drift_ppb()), -50e3, 3);  // of its own seconds
  const auto error = [&](std::int64_t first) {
    return static_cast<double>(clock.on_first_rank(own(first)) - first);
  };
  for (const std::int64_t first : {start, 3600 * second, day, end}) {
    EXPECT_NEAR(error(first), 0, 2) << first;
  }
  EXPECT_NEAR(error(end + second), 50e3, 2);  // not corrected after the second comparison
  EXPECT_NEAR(error(0), -500e3, 2);
}

TEST(TraceClock, TakesALargeDriftForAnErrorOfTheComparisons) {
  const TraceClock clock{0, 0, 1'000'000, 100'000};
  EXPECT_EQ(clock.drift_ppb(), 500'000);
  EXPECT_EQ(clock.on_first_rank(1'000'000), 1'000'500);
}

TEST(TraceParts, SpansWithinOthersStayWithinThem) {
  const test::TempFolder folder;
  std::filesystem::create_directories(parts_folder(folder.path()));
  constexpr std::int64_t second = 1'000'000'000;
  std::vector<SpanRow> spans(3);
  spans[0].duration_ns = second;  // two that follow each other, and one at the end of the second
  spans[1].start_ns = second;
  spans[1].duration_ns = 2 * second;
  spans[2].start_ns = 2 * second;
  spans[2].duration_ns = second;
  PartWriter writer(folder.path(), 0);
  writer.append(PartTable::spans, spans.data(), spans.size() * sizeof(SpanRow));
  for (const std::int64_t change : {-31'416, 31'416}) {  // of the offset in 3 s
    const TraceClock clock{0, 7, 3 * second, 7 + change};
    const std::string rows =
        PartReader(folder.path(), 0).read(PartTable::spans, sizeof(SpanRow), 0, 3, clock, 7);
    std::memcpy(spans.data(), rows.data(), rows.size());
    const auto span_end = [](const SpanRow& span) { return span.start_ns + span.duration_ns; };
    EXPECT_EQ(span_end(spans[0]), second + change / 3);
    EXPECT_EQ(spans[1].start_ns, span_end(spans[0]));
    EXPECT_EQ(span_end(spans[1]), 3 * second + change);
    EXPECT_EQ(span_end(spans[2]), span_end(spans[1]));
  }
}

TEST_F(Trace, HoldsWhatAllRanksHaveRecordedOnOneClock) {
  const auto traces = writer();
  record_spans(now_on_first_rank());
  exchange();
  trace::recorder().clips_waiting = 5;
  traces->finish_together();
  EXPECT_EQ(folder.listing(), "trace.h5");
  EXPECT_EQ(read_trace(1, true), 0);
}

TEST_F(Trace, IsMadeOfPartsWhileTheJobRuns) {
  const auto traces = writer();
  const std::int64_t base = now_on_first_rank();
  trace::recorder().clips_waiting = 5;
  for (int times = 1; times <= 3; ++times) {
    record_spans(base + 1'000'000 * times);
    exchange();
    trace::recorder().span_ended(trace::Level::stages);  // samples counters
    if (world.rank() != 0) traces->write_part();
    EXPECT_TRUE(world.rank() == 0 || trace::recorder().spans.empty());
    world.barrier();
    if (world.rank() == 0) traces->write_part();  // makes trace.h5
    world.barrier();
    EXPECT_EQ(read_trace(times, false), 0);
    world.barrier();
  }
  record_spans(base + 4'000'000);
  exchange();
  traces->finish_together();
  EXPECT_EQ(folder.listing(), "trace.h5");
  EXPECT_EQ(read_trace(4, true), 0);
}

TEST_F(Trace, DropsARowThatIsHalfWritten) {
  const auto traces = writer();
  record_spans(now_on_first_rank());
  exchange();
  trace::recorder().clips_waiting = 5;
  trace::recorder().span_ended(trace::Level::stages);
  traces->write_part();
  world.barrier();
  if (world.rank() == 0) {
    for (const char* name : {"000000.spans", "000000.messages", "000000.counters"}) {
      std::ofstream file(folder.path() / "trace" / name, std::ios::app | std::ios::binary);
      file << "half of a row";
    }
    make_trace_file(folder.path(), world.size(), "ops");
  }
  world.barrier();
  EXPECT_EQ(read_trace(1, false), 0);
}

TEST_F(Trace, WithoutSpansHasTheRanksAllTheSame) {
  trace::recorder().level = trace::Level::stages;
  for (int i = 0; i < 2; ++i) {  // the second replaces the first
    forget_waits();
    writer()->finish_together();
  }
  const hdf5::File file = hdf5::open_for_reading(folder.path() / "trace.h5");
  for (const auto& [name, rows] :
       {std::pair("spans", 0), std::pair("messages", 0), std::pair("ranks", world.size())}) {
    const hdf5::Dataset dataset =
        hdf5::open_dataset(file.get(), fmt::format("{}/rank", name).c_str());
    const hdf5::Dataspace space(H5Dget_space(dataset.get()));
    EXPECT_EQ(H5Sget_simple_extent_npoints(space.get()), rows) << name;
  }
}

// The hook writes parts by itself when many rows are in memory, but not within a stage.
TEST_F(Trace, RowsLeaveTheMemoryAtTheEndOfAStage) {
  const auto traces = writer();
  {
    const trace::Scope outer(trace::spans::decode);
    for (int i = 0; i < 80000; ++i) {
      const trace::Scope product(trace::spans::product);
    }
    { const trace::Scope inner(trace::spans::load); }
    EXPECT_EQ(trace::recorder().spans.size(), 80001U);
  }
  ASSERT_EQ(trace::recorder().spans.size(), 1U);
  EXPECT_EQ(trace::recorder().spans.front().name, trace::spans::write_trace.name);
  EXPECT_EQ(std::filesystem::file_size(folder.path() / "trace" /
                                       fmt::format("{:06}.spans", world.rank())),
            80002 * sizeof(SpanRow));
  world.barrier();
  // So many that they are copied in several portions.
  const auto check_spans = [&] {
    std::int64_t row = 0;
    reelmesh::read_trace(folder.path() / "trace.h5", [&](const SavedSpan& span) {
      const std::int64_t rows = 80002;
      EXPECT_EQ(span.rank, row / rows);
      EXPECT_EQ(span.name, row % rows == 0          ? "decode"
                           : row % rows == rows - 1 ? "load"
                                                    : "product");
      ++row;
    });
    EXPECT_EQ(row, 80002 * world.size());
  };
  forget_waits();
  if (world.rank() == 0) {
    traces->write_part();
    check_spans();
  }
  world.barrier();
  forget_waits();
  traces->finish_together();
  check_spans();
}

// Tables of format 1 were compound datasets.
TEST(SavedTrace, OfAnEarlierFormatIsRead) {
  std::vector<std::string> spans;
  const auto ranks =
      read_trace(REELMESH_SOURCE "/tests/fuzz/corpus/trace/whole.h5", [&](const SavedSpan& span) {
        spans.push_back(fmt::format("{} {} {} {} {:.9f} {:.9f} {}", span.rank, span.name, span.clip,
                                    span.step, span.start, span.seconds, span.flops));
      });
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[1].host, "node0");
  EXPECT_EQ(ranks[1].threads, 1);
  ASSERT_EQ(spans.size(), 16U);
  EXPECT_EQ(spans[0], "0 load -1 -1 0.250000000 0.002338944 0");
  EXPECT_EQ(spans[13], "1 denoise_step 0 0 0.326290297 0.016487833 462697472");
}

TEST_F(Trace, AnErrorOfWritingStopsRecordingWithOneWarning) {
  const auto traces = writer();
  record_spans(0);
  traces->write_part();
  world.barrier();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 50000;
  setrlimit(RLIMIT_FSIZE, &small);
  trace::recorder().spans.resize(1000, {"load", "file"});
  traces->write_part();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(trace::recorder().level, trace::Level::off);
  EXPECT_TRUE(trace::recorder().spans.empty());
  testing::internal::CaptureStderr();
  traces->finish_together();
  const std::string printed = testing::internal::GetCapturedStderr();
  if (log::rank() == first_rank) {
    EXPECT_THAT(printed, testing::HasSubstr("warning: the trace is not complete: rank 0: "));
    EXPECT_THAT(printed, testing::HasSubstr("000000.spans: cannot write to it: File too large"));
    EXPECT_EQ(std::ranges::count(printed, '\n'), 1) << printed;
  } else {
    EXPECT_EQ(printed, "");
  }
  world.barrier();
  EXPECT_EQ(folder.listing(), "trace.h5");  // as it was made before
}

TEST_F(Trace, WithoutAFolderNothingIsRecorded) {
  std::ofstream(folder.path() / "trace") << "a file";
  const auto traces = writer();
  EXPECT_EQ(trace::recorder().level, trace::Level::off);
  testing::internal::CaptureStderr();
  traces->finish_together();
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(printed, '\n'), log::rank() == first_rank ? 1 : 0) << printed;
  EXPECT_EQ(folder.listing(), "trace");
}

TEST(TraceCounters, KeepThePeakBetweenTwoSamples) {
  constexpr std::int64_t bytes = 1 << 20;
  CounterSampler counters(3);
  counters.sample(10);  // what tests before have left
  counters.rows.clear();
  {
    const PurposeScope purpose(Purpose::queue);
    const Tensor large = Tensor::empty({2 * bytes}, DType::uint8);
    const Tensor small = Tensor::empty({bytes}, DType::uint8);
  }
  counters.sample(20);
  counters.sample(30);  // nothing has changed
  trace::recorder().clips_waiting = 2;
  counters.sample(40);
  trace::recorder() = {};
  ASSERT_EQ(counters.rows.size(), 2U);
  const CounterRow& queue = counters.rows[0];
  EXPECT_EQ(queue.rank, 3);
  EXPECT_EQ(queue.counter, static_cast<int>(Purpose::queue));
  EXPECT_EQ(queue.time_ns, 20);
  EXPECT_EQ(queue.max - queue.value, 3 * bytes);
  EXPECT_EQ(counters.rows[1].counter, static_cast<int>(TraceCounter::clips_waiting));
  EXPECT_EQ(counters.rows[1].value, 2);
  EXPECT_EQ(counters.rows[1].time_ns, 40);
}

}  // namespace
}  // namespace reelmesh
