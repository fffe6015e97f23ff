#pragma once
// The description of a plan: one JSON value, and how people read it.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/plan.hpp"

namespace reelmesh {

/// Bytes of each rank in each stage.
nlohmann::json describe(const MemoryPlan& memory);
/// Roles, device map, weights and queue, and the layout of clips of one size. Without what depends
/// on single ranks, so its size does not grow with their number.
nlohmann::json describe_layout(const Plan& plan, std::size_t size);
/// All of a plan, with clips of one size: both values above, and for each rank what it does.
/// describe() adds what is known of the job's clips. "step": FLOPs and bytes sent of one clip, by
/// the ranks of the first replica; in a training of all clips of a step, by all ranks.
nlohmann::json describe(const Plan& plan, std::size_t size, bool trains = false);

/// How much of a plan is printed.
enum class Detail {
  summary,  ///< the stages in a table, and what a user may not expect
  full,     ///< also roles, layout, memory and costs
  ranks     ///< also a table of all ranks
};
/// The text for people, of one of the values above: of what it has, and of nothing else.
std::string plan_text(const nlohmann::json& plan, Detail detail = Detail::full);

}  // namespace reelmesh
