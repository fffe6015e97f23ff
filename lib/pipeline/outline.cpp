#include "pipeline/outline.hpp"

#include "plan/nodes.hpp"

namespace reelmesh::pipeline {

Outline outline(const Job& job, const Conditions& conditions, int ranks_per_node) {
  const std::unique_ptr<const Family> family = Family::open(job.model);
  const Family& model = *family;
  model.check_weights();
  const std::vector<Clip> clips = model.clips(job, Tokenizer::open(model.paths().tokenizer));
  Outline made;
  made.clip = clips.front();
  made.clips = static_cast<int>(clips.size());
  made.plan = plan_roles(job, model, clips, conditions);
  const Mesh mesh = model.mesh(made.plan, made.clip, job.dtype);
  std::vector<int> nodes;
  for (int rank = 0; rank < conditions.ranks; ++rank) nodes.push_back(rank / ranks_per_node);
  made.launched = order_by_node(
      nodes, job.parallel.order == Order::rank
                 ? std::vector<RankRange>{}
                 : close_ranks(made.plan.denoise, {mesh.branch_ranks(), mesh.ulysses}, nodes));
  for (const int rank : made.launched)
    made.node.push_back(nodes.at(static_cast<std::size_t>(rank)));
  made.plan.speeds = speeds_of_ranks(job, conditions.ranks);
  made.memory = plan_memory(job, model, clips, made.plan, conditions);
  require_fit(job, model, clips, made.memory, conditions);
  made.plan.in_turn = made.memory.in_turn;
  made.cost = model.cost(made.plan, made.clip, 1, precision_of(job, conditions));
  made.text = model.describe(made.plan, made.clip, job.dtype) + describe(made.memory);
  return made;
}

}  // namespace reelmesh::pipeline
