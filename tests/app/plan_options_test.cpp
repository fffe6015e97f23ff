#include <gmock/gmock.h>

#include "plan_options.hpp"
#include "support/expect_error.hpp"

namespace reelmesh::app {
namespace {

using ::testing::HasSubstr;

TEST(PlanOptions, TakesThoseOfRunAndItsOwn) {
  const auto plan = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"plan", "--model.path", "m"});
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    return parse_plan(static_cast<int>(argv.size()), argv.data());
  };
  const PlanOptions some = plan({"--ranks", "8", "--json", "--ranks-per-node=4", "--sample.steps",
                                 "7", "--device-memory", "80GiB", "--prompt.text", "cat"});
  EXPECT_EQ(some.ranks, std::vector{8});
  EXPECT_EQ(some.ranks_per_node, 4);
  EXPECT_TRUE(some.json);
  EXPECT_EQ(some.job.sample.steps, 7);
  EXPECT_EQ(some.job.clips.at(0).prompt, "cat");
  EXPECT_EQ(some.job.memory_limits, (std::vector<std::int64_t>{std::int64_t{80} << 30}));
  // Only ranks and model are required; defaults: one clip, one node, no limits.
  const PlanOptions minimal = plan({"--ranks", "3"});
  EXPECT_FALSE(minimal.ranks_per_node.has_value()) << "all on one node";
  EXPECT_FALSE(minimal.deadline.has_value());
  EXPECT_FALSE(minimal.json);
  EXPECT_EQ(minimal.job.clips.size(), 1U);
  EXPECT_TRUE(minimal.job.memory_limits.empty());
  // Several numbers of ranks, a comparison, a deadline, ranks of the launcher.
  EXPECT_EQ(plan({"--ranks", "1,2,8"}).ranks, (std::vector{1, 2, 8}));
  const std::string machine = std::string(REELMESH_TEST_DATA) + "/machine.cfg";
  EXPECT_TRUE(
      plan({"--ranks", "4", "--parallel.tune", "yes", "--device.machine", machine}).job.tune);
  // A machine with GPUs gives backend and limit, unless they are given.
  const std::string gpus = std::string(REELMESH_SOURCE) + "/inputs/machines/t4.cfg";
  const Job on_gpus = plan({"--ranks", "1", "--device.machine", gpus}).job;
  EXPECT_EQ(on_gpus.backend, Backend::cuda);
  EXPECT_EQ(on_gpus.memory_limits, (std::vector<std::int64_t>{std::int64_t{29} << 29}));
  EXPECT_EQ(
      plan({"--ranks", "1", "--device.machine", gpus, "--device-memory", "1GiB"}).job.memory_limits,
      (std::vector<std::int64_t>{1 << 30}));
  EXPECT_EQ(plan({"--deadline", "2h"}).deadline, 7200.0);
  Allocation allocation;
  allocation.ranks = 6;
  allocation.ranks_per_node = 3;
  allocation.threads = 2;
  allocation.node_bytes = 1 << 20;
  const std::vector<const char*> launched{"plan", "--model.path", "m"};
  const PlanOptions of_slurm = parse_plan(3, launched.data(), allocation);
  EXPECT_EQ(of_slurm.node_bytes, 1 << 20);
  EXPECT_EQ(of_slurm.job.threads, 2);
  EXPECT_EQ(of_slurm.ranks, std::vector{6});
  EXPECT_EQ(of_slurm.ranks_per_node, 3);
  using reelmesh::test::expect_error;
  expect_error(
      Status::usage, [&] { plan({}); }, "--ranks is missing");
  expect_error(
      Status::usage,
      [&] {
        plan({"--ranks", "0"});
      },
      "whole number from 1");
  expect_error(
      Status::usage,
      [&] {
        plan({"--ranks", "2", "--ranks", "3"});
      },
      "given twice");
  expect_error(
      Status::usage,
      [&] {
        plan({"--ranks", "2", "--device-memory", "1GiB", "--device.memory-limit", "2GiB"});
      },
      "given twice");
  for (const char* option : {"--ranks N", "--ranks-per-node M", "--device-memory SIZES", "--json",
                             "--deadline TIME", "--preset NAME", "plan compare"}) {
    EXPECT_THAT(format_page(plan_help(), {}), HasSubstr(option));
  }
}

TEST(PlanOptions, APresetIsAModelWithoutWeights) {
  std::filesystem::path folder;
  {
    const std::vector<const char*> words{"plan", "--preset", "tiny-cogvideox", "--ranks", "2"};
    const PlanOptions options = parse_plan(static_cast<int>(words.size()), words.data());
    folder = options.job.model.root;
    EXPECT_TRUE(options.job.model.without_weights);
    EXPECT_TRUE(std::filesystem::exists(folder / "vae" / "config.json"));
    EXPECT_EQ(options.given.back().value, PresetFolder::instead);
    EXPECT_EQ(options.preset->named(folder.string() + "/vae: wrong"), "tiny-cogvideox/vae: wrong");
  }
  EXPECT_FALSE(std::filesystem::exists(folder)) << "ends with the options";
}

TEST(PlanOptions, CalibrationTakesOnlyThoseOfTheDevice) {
  const auto calibrate = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"calibrate", "node.cfg"});
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    return parse_calibrate(static_cast<int>(argv.size()), argv.data());
  };
  const CalibrateOptions some = calibrate({"--device.threads", "3", "--device.backend", "cpu"});
  EXPECT_EQ(some.file, "node.cfg");
  EXPECT_EQ(some.job.threads, 3);
  for (const char* option : {"--ranks", "--json", "--model.path", "--device.machine"}) {
    reelmesh::test::expect_error(
        Status::usage,
        [&] {
          calibrate({option, "2"});
        },
        option);
  }
}

}  // namespace
}  // namespace reelmesh::app
