#pragma once
// A job laid out without starting it: what `reelmesh plan` shows.
#include "pipeline/planning.hpp"

namespace reelmesh::pipeline {

struct Outline {
  Plan plan;
  MemoryPlan memory;
  Clip clip;      ///< the first of the job
  int clips = 0;  ///< of the job
  ClipCost cost;  ///< of that clip
  /// The rank of the launcher that takes each place of the plan, and the node that it is on.
  std::vector<int> launched, node;
  std::string text;  ///< what `run` says at its start
};

/// For conditions.ranks ranks, `ranks_per_node` of them on each node, the first ones on the first.
/// Reads the model's small files and the headers of its weights. Throws what `run` would throw
/// before it loads anything, Error(unavailable) where the job does not fit.
Outline outline(const Job& job, const Conditions& conditions, int ranks_per_node);

}  // namespace reelmesh::pipeline
