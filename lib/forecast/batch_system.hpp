#pragma once
// What a batch system or launcher gives a job, and how a job is submitted to Slurm.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "forecast/prediction.hpp"

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

/// "sbatch --nodes=2 --ntasks-per-node=8 --cpus-per-task=1 --gpus-per-node=8 --time=01:20:00
/// jobs/cogvideox.sbatch": for the ranks and nodes of a plan, on CPUs with its memory and a tenth
/// more, with the longest predicted time and five minutes if times are known.
std::string sbatch_line(const JobPlan& planned, const std::optional<Prediction>& prediction);

}  // namespace reelmesh
