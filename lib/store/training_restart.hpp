#pragma once
// The state of a training between two steps, as an HDF5 file OUT/restart/training.h5.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "layout/sharded.hpp"

namespace reelmesh {

/// One array of the state: float32, on the host, over the group that writes or reads it. The same
/// list serves both.
struct TrainingArray {
  std::string name;  ///< unique, without '/'
  Sharded values;    ///< at least one axis, none of them empty
};

/// The version of the file, as its attribute restart_version. Others are not read.
constexpr std::int64_t training_restart_version = 3;

/// folder/restart/training.h5
std::filesystem::path training_restart_path(const std::filesystem::path& folder);

/// Writes the state after `step` steps from all ranks of `group`, as write_arrays. Arrays are
/// partitions or replicated. fingerprint: all that must agree for the training to go on, items
/// "name value" separated by ", ". Collective; errors as write_arrays.
void write_training_restart(const comm::Group& group, const std::filesystem::path& folder,
                            std::int64_t step, const std::string& fingerprint,
                            const std::vector<TrainingArray>& arrays);

/// The fingerprint of the state in the folder; none if there is no state, or it is damaged. On one
/// rank.
std::optional<std::string> saved_fingerprint(const std::filesystem::path& folder);

/// Error(data) if the folder has a state of another fingerprint, or after more than `steps` steps.
/// Reads nothing else of it. On one rank.
void require_training_of(const std::filesystem::path& folder, const std::string& fingerprint,
                         std::int64_t steps);

/// Reads the state on all ranks of `group`, which may be others than those that wrote it: each
/// array's box of this rank, in any layout, into values.local, which has the extents of the box.
/// → the number of steps; empty if there is no file. The file is untrusted. Error(data) on all
/// ranks, before anything is read, if it is damaged or of another version, if fingerprint, names or
/// shapes are not these, or if it is a state after more than `steps` steps. Collective.
std::optional<std::int64_t> read_training_restart(const comm::Group& group,
                                                  const std::filesystem::path& folder,
                                                  const std::string& fingerprint,
                                                  std::int64_t steps,
                                                  const std::vector<TrainingArray>& arrays);

}  // namespace reelmesh
