#include "forecast/batch_system.hpp"

#include <gtest/gtest.h>

#include <map>

#include "forecast/plan_job.hpp"
#include "support/model_job.hpp"

namespace reelmesh {
namespace {

Allocation found(const std::map<std::string, std::string>& variables) {
  return find_allocation(
      [&](const char* name) -> const char* {
        const auto entry = variables.find(name);
        return entry == variables.end() ? nullptr : entry->second.c_str();
      },
      1000);
}

TEST(BatchSystem, ReadsSlurm) {
  const Allocation of = found({{"SLURM_JOB_ID", "17"},
                               {"SLURM_NTASKS", "12"},
                               {"SLURM_JOB_NUM_NODES", "2"},
                               {"SLURM_CPUS_PER_TASK", "4"},
                               {"SLURM_MEM_PER_NODE", "65536"},
                               {"SLURM_JOB_END_TIME", "4600"},
                               {"OMPI_COMM_WORLD_SIZE", "3"}});
  EXPECT_EQ(of.source, "Slurm job 17");
  EXPECT_EQ(of.ranks, 12);
  EXPECT_EQ(of.ranks_per_node, 6);
  EXPECT_EQ(of.threads, 4);
  EXPECT_EQ(of.node_bytes, std::int64_t{64} << 30);
  EXPECT_EQ(of.seconds_left, 3600.0);
}

TEST(BatchSystem, ReadsMpirun) {
  const Allocation of = found({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(of.source, "mpirun");
  EXPECT_EQ(of.ranks, 8);
  EXPECT_EQ(of.ranks_per_node, 4);
  EXPECT_FALSE(of.seconds_left);
}

TEST(BatchSystem, LeavesOutWhatIsNoNumber) {
  const Allocation of = found({{"SLURM_JOB_ID", "17"},
                               {"SLURM_NTASKS", "many"},
                               {"SLURM_NTASKS_PER_NODE", "8(x2)"},
                               {"SLURM_MEM_PER_NODE", "-1"}});
  EXPECT_FALSE(of.ranks);
  EXPECT_EQ(of.ranks_per_node, 8);
  EXPECT_FALSE(of.node_bytes);
  EXPECT_EQ(found({}).source, "");
  const Allocation large =
      found({{"SLURM_JOB_ID", "17"}, {"SLURM_MEM_PER_NODE", "9223372036854775807"}});
  EXPECT_GT(large.node_bytes, std::int64_t{1} << 62);
}

TEST(BatchSystem, SubmitsThePlannedRanks) {
  Job job = test::model_job();
  job.sample.height = 64;
  job.sample.width = 64;
  job.sample.frames = 9;
  std::vector<Given> given{{"prompt.file", "prompts.txt", "--prompt.file"},
                           {"output.path", "/results", "--output.path"},
                           {"model.lora", "a.safetensors:0.5", "--model.lora"},
                           {"model.lora", "b.safetensors", "--model.lora"},
                           {"prompt.negative", "it's", "--prompt.negative"},
                           {"prompt.text", "two\nlines", "--prompt.text"}};
  const std::string start = "env -C " + std::filesystem::current_path().string() +
                            " CONFIG=none MODEL=" + job.model.root.string() +
                            " OUTPUT=/results sbatch --nodes=";
  const std::string end =
      " /share/jobs/cogvideox.sbatch --prompt.file prompts.txt --model.lora a.safetensors:0.5"
      " --model.lora b.safetensors --prompt.negative 'it'\\''s' --prompt.text $'two\\nlines'";
  const auto line = [&](std::vector<int> nodes, bool on_gpu,
                        const std::optional<Prediction>& prediction) {
    const auto ranks = static_cast<int>(nodes.size());
    const JobPlan planned =
        plan_job(job, plan_conditions(job, ranks, 2, std::move(nodes), DType::float32, on_gpu));
    return submission(job, planned, prediction, given, {"/share/jobs", {}});
  };
  EXPECT_EQ(line({0, 0, 1, 1}, false, std::nullopt),
            start + "2 --ntasks-per-node=2 --cpus-per-task=2 --mem=1G" + end);
  Prediction hours;
  hours.high = 7200;
  EXPECT_EQ(line({0, 0, 1}, true, hours),
            start +
                "2 --ntasks-per-node=2 --cpus-per-task=2 --ntasks=3 --gpus-per-node=2 --mem=5G"
                " --time=02:05:00" +
                end);
  hours.high = 1e30;
  EXPECT_EQ(line({0}, true, hours),
            start +
                "1 --ntasks-per-node=1 --cpus-per-task=2 --gpus-per-node=1 --mem=3G"
                " --time=UNLIMITED" +
                end);
}

}  // namespace
}  // namespace reelmesh
