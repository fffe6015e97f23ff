#pragma once
// A plan for other programs: `reelmesh plan --json`, and job.h5.
#include <nlohmann/json_fwd.hpp>

#include "pipeline/job_plan.hpp"

namespace reelmesh::pipeline {

/// The data of one rank of a plan, for the first clip of the job.
struct PlanRow {
  const JobPlan& planned;
  int rank;
  std::size_t size = planned.size_index(planned.kinds[0]);

  const Plan& plan() const { return planned.plan; }
  std::size_t index() const { return static_cast<std::size_t>(rank); }
  const ClipPlan::OfRank& cost() const { return plan().sizes[size].ranks.at(index()); }
  const RankMemory& memory() const { return plan().memory.ranks.at(index()); }
  Box tokens() const { return plan().tokens(size, rank); }
  Box text_tokens() const { return plan().text_tokens(size, rank); }
  Box decodes() const { return plan().decoded_latents(size, rank); }

  std::vector<std::int64_t> text_layers() const {
    std::vector<std::int64_t> layers;
    const std::vector<int>& holders = plan().device_map.layer_rank;
    for (std::size_t i = 0; i < holders.size(); ++i) {
      if (plan().roles.text.first + holders[i] == rank) {
        layers.push_back(static_cast<std::int64_t>(i));
      }
    }
    return layers;
  }
};

/// Roles, boxes, memory and costs of every rank.
nlohmann::json as_json(const JobPlan& planned);

}  // namespace reelmesh::pipeline
