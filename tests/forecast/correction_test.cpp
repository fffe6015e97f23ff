#include "forecast/correction.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "forecast/simulation.hpp"
#include "store/saved_trace.hpp"
#include "store/trace_file.hpp"
#include "support/constant_machine.hpp"
#include "support/expect_error.hpp"
#include "support/model_job.hpp"
#include "support/temp_folder.hpp"

namespace reelmesh {
namespace {

constexpr int ranks = 2;
constexpr double start = 2;

// A job that has taken other times than the machine's.
class Corrected : public testing::Test {
 protected:
  Corrected() {
    MachineTimes machine = test::constant_machine(1e8);
    machine.start = start;
    machine.write = 1e6;
    machine.touch = 1e9;
    machine.alone[DType::float32].load = 5e6;
    machine.alone[DType::float32].load_convolutions = 5e6;
    job.machine = std::make_shared<const MachineTimes>(machine);
    job.sample.steps = 4;
    job.dtype = DType::float32;
    job.parallel.replicas = 1;
    planned = plan_job(job, plan_conditions(job, ranks, 1, {0, 0}, DType::float32, false));
    simulation = simulate(planned, planned, form_batches(planned.clips, planned.kinds, job.batch),
                          {}, 1'000'000);
    run = {folder.path(), simulation.seconds, job.parallel, {0, 0}, 1};
  }

  // All spans of this name take so many times as long.
  void stretch(std::string_view name, std::int64_t times) {
    for (auto& spans : simulation.spans) {
      for (trace::Span& span : spans) {
        if (span.name == name) span.duration_ns *= times;
      }
    }
  }
  void write() {
    write_simulated_trace(folder.path(), std::chrono::system_clock::now(),
                          std::vector<RankRecord>(simulation.spans.size()), simulation.spans);
  }
  Correction correction() {
    write();
    return corrected(planned, form_batches(planned.clips, planned.kinds, job.batch), run);
  }
  const MachineTimes& machine() const { return *job.machine; }

  test::TempFolder folder;
  Job job = test::model_job(3);
  JobPlan planned;
  Simulation simulation;
  EarlierRun run;
};

// How many times as long as before operations of a kind take.
double ratio(const MachineTimes& now, const MachineTimes& before, const char* kind) {
  return now.alone.at(DType::float32).operations.at(kind).known()[0].seconds /
         before.alone.at(DType::float32).operations.at(kind).known()[0].seconds;
}

TEST_F(Corrected, StaysIfTheJobTookWhatWasPredicted) {
  const Correction found = correction();
  EXPECT_EQ(found.stages.size(), 6U);
  for (const ComparedStage& stage : found.stages) {
    EXPECT_GT(stage.measured, 0) << stage.name;
    EXPECT_NEAR(stage.measured, stage.predicted, 1e-6 + 1e-4 * stage.predicted) << stage.name;
  }
  for (const char* kind : {"product", "attention", "norm", "copy", "convolution", "group_norm"}) {
    EXPECT_NEAR(ratio(found.machine, machine(), kind), 1, 1e-4) << kind;
  }
  EXPECT_NEAR(found.machine.start, start, 1e-3);
  EXPECT_TRUE(found.machine.measured);
  EXPECT_NE(found.machine.source.find("corrected by a job of 2 ranks"), std::string::npos);
}

TEST_F(Corrected, HasTheRatioOfTheStagesThatNeedATime) {
  stretch("load", 2);
  stretch("denoise_step", 3);
  stretch("decode", 5);
  stretch("write", 7);
  const MachineTimes now = correction().machine;
  for (const char* kind : {"product", "attention", "norm", "copy"}) {
    EXPECT_NEAR(ratio(now, machine(), kind), 3, 1e-3) << kind;
  }
  for (const char* kind : {"convolution", "group_norm", "group_sums"}) {
    EXPECT_NEAR(ratio(now, machine(), kind), 5, 1e-3) << kind;
  }
  const DTypeTimes &of = now.alone.at(DType::float32), &was = machine().alone.at(DType::float32);
  EXPECT_NEAR(of.load, was.load / 2, 1e-3 * was.load);
  EXPECT_NEAR(of.load_convolutions, was.load_convolutions / 2, 1e-3 * was.load);
  EXPECT_NEAR(now.touch, machine().touch / 2, 1e-3 * machine().touch);
  EXPECT_NEAR(now.write, machine().write / 7, 1e-3 * machine().write);
  EXPECT_EQ(now.disk, machine().disk);
}

TEST_F(Corrected, RefusesTheTraceOfAnotherModel) {
  for (auto& spans : simulation.spans) {
    for (trace::Span& span : spans) span.flops *= 2;
  }
  test::expect_error(
      Status::data, [&] { correction(); }, "trace.h5", "another model or layout");
}

TEST_F(Corrected, RefusesATraceWithOtherRanks) {
  simulation.spans.emplace_back();
  test::expect_error(
      Status::data, [&] { correction(); }, "3 ranks", "expected the 2 of job.h5");
}

TEST_F(Corrected, RefusesATraceWithoutStages) {
  for (auto& spans : simulation.spans) spans.clear();
  test::expect_error(
      Status::data, [&] { correction(); }, "found no steps", "trace.level = stages");
}

TEST_F(Corrected, IsShown) {
  stretch("decode", 5);
  const Correction found = correction();
  EXPECT_NE(correction_text(found).find("decoding"), std::string::npos);
  const nlohmann::json stages = describe(found).at("stages");
  EXPECT_EQ(stages.at(3).at("stage"), "decoding");
  EXPECT_NEAR(stages.at(3).at("measured_seconds").get<double>(),
              5 * stages.at(3).at("predicted_seconds").get<double>(), 1e-3);
}

TEST_F(Corrected, ReadsWhatWasWritten) {
  write();
  std::vector<std::size_t> count(ranks);
  const auto found = read_trace(folder.path() / "trace.h5", [&](const SavedSpan& span) {
    const auto rank = static_cast<std::size_t>(span.rank);
    const trace::Span& expected = simulation.spans[rank][count[rank]++];
    EXPECT_EQ(span.name, expected.name);
    EXPECT_EQ(span.clip, expected.clip);
    EXPECT_EQ(span.step, expected.step);
    EXPECT_EQ(span.flops, static_cast<double>(expected.flops));
    EXPECT_NEAR(span.start, 1e-9 * static_cast<double>(expected.start_ns), 1e-9);
    EXPECT_NEAR(span.seconds, 1e-9 * static_cast<double>(expected.duration_ns), 1e-9);
  });
  EXPECT_EQ(found.size(), std::size_t(ranks));
  for (std::size_t rank = 0; rank < count.size(); ++rank) {
    EXPECT_EQ(count[rank], simulation.spans[rank].size());
  }
}

TEST_F(Corrected, DamagedTracesAreRefused) {
  const auto path = folder.path() / "trace.h5";
  const auto read = [&] { read_trace(path, [](const SavedSpan&) {}); };
  test::expect_error(Status::no_input, read, path.string(), "file not found");
  write();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  test::expect_error(Status::data, read, path.string());
  std::ofstream(path) << "no HDF5";
  test::expect_error(Status::data, read, path.string(), "cannot open");
  simulation.spans[1][0].duration_ns = -5;
  write();
  test::expect_error(Status::data, read, path.string(), "of rank 1 that takes -5 ns");
}

}  // namespace
}  // namespace reelmesh
