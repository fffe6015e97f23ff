#pragma once
// What a batch system or launcher gives a job, and how a job is submitted to Slurm.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "forecast/prediction.hpp"
#include "job/values.hpp"

namespace reelmesh {

/// What the environment says of the ranks that a job would have; empty if it does not.
struct Allocation {
  std::string source;  ///< "Slurm job 123", "mpirun"; empty: none
  std::optional<int> ranks, ranks_per_node, threads;
  std::optional<std::int64_t> node_bytes;  ///< memory of a node
  std::optional<double> seconds_left;      ///< until the time limit
};

/// The value of an environment variable, or null.
using Variables = std::function<const char*(const char* name)>;

/// Of Slurm's variables (SLURM_NTASKS, …; sbatch's manual), otherwise of Open MPI's
/// (OMPI_COMM_WORLD_SIZE, …). Values that are no numbers count as missing. now: seconds since 1970.
Allocation find_allocation(const Variables& variables, double now);

/// How the scripts in jobs/ find themselves and the program.
struct Installation {
  std::filesystem::path scripts;  ///< their folder, absolute
  std::filesystem::path program;  ///< absolute; empty if the scripts name it
};
/// Of the running program: PREFIX/share/reelmesh/jobs, or jobs/ beside its build folder.
Installation find_installation();

/// A whole command for a shell that submits what is planned from any folder: this folder, to which
/// paths are relative, variables of the script, resources, the script and all other options.
/// "env -C /home/me CONFIG=a.cfg MODEL=5b OUTPUT=results sbatch --nodes=2 --ntasks-per-node=8
/// --cpus-per-task=8 --gpus-per-node=8 --mem=40G --time=01:20:00
/// /share/reelmesh/jobs/cogvideox.sbatch --prompt.file prompts.txt".
///
/// given: the options of the job on the command line. Without output.path: "results". Memory of a
/// node: on CPUs that of the plan and a tenth more; with GPUs, while weights are loaded: the
/// largest part's weights and 2 GiB for each rank. Cores of a rank: its threads; with GPUs its
/// share of the machine's. Time: the longest predicted and five minutes, if times are known.
std::string submission(const Job& job, const JobPlan& planned,
                       const std::optional<Prediction>& prediction, const std::vector<Given>& given,
                       const Installation& installation);

}  // namespace reelmesh
