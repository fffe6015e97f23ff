#pragma once
// How results were made: /provenance of job.h5.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace reelmesh {

/// The computer of one rank.
struct RankHost {
  std::string host;
  std::string processor;  ///< as /proc/cpuinfo names it
  std::string vectors;    ///< ops::vector_instructions(); empty of a simulated job
  std::string device;     ///< "cpu", or a GPU's name
  std::string driver;     ///< of the GPU; empty on the CPU
};

/// Each member except the last is an attribute.
struct Provenance {
  std::vector<std::string> command;  ///< its words as given
  std::string working_folder;
  std::string job_file;                    ///< text of the --config file
  std::vector<std::string> options_given;  ///< "section.key = value"
  std::string git_revision;
  bool git_changed = false;  ///< the source had changes that were not committed
  std::string compiler, compiler_flags, build_type;
  std::vector<std::string> libraries;  ///< "Open MPI 4.1.4": those that are loaded
  std::string model_path;              ///< absolute
  std::string weights_hash;            ///< of all contents of the checkpoint
  std::string products;                ///< input type of products on CPUs; empty on GPUs
  /// "NAME=value" of the variables that the program and its libraries read, and of Slurm's.
  std::vector<std::string> environment, slurm;
  std::vector<RankHost> hosts;  ///< per rank
};

}  // namespace reelmesh
