#include "pipeline/family.hpp"

#include "pipeline/cogvideox.hpp"
#include "pipeline/opensora.hpp"
#include "weights/config.hpp"

namespace reelmesh::pipeline {
namespace {

std::vector<comm::Group> groups_of(const comm::Group& world, const std::vector<RankRange>& ranges) {
  std::vector<comm::Group> groups;
  for (const RankRange& range : ranges) groups.push_back(world.range(range.first, range.count));
  return groups;
}

}  // namespace

DenoiseStage::DenoiseStage(const comm::Group& world, const Plan& plan)
    : world_(world), plan_(plan), groups_(groups_of(world, plan.denoise)) {}

DecodeStage::DecodeStage(const comm::Group& world, const Plan& plan)
    : world_(world),
      group_(world.range(plan.decode.first, plan.decode.count)),
      ranks_(plan.decode) {}

Layout DecodeStage::context(const Shape& global) const {
  return Layout::cut(global, 0, ranks_.count).embed(ranks_.first, world_.size());
}

Sharded DecodeStage::within(const Sharded& x) const {
  return {x.local, x.layout.part(ranks_.first, ranks_.count), group_};
}

std::unique_ptr<const Family> Family::open(const ModelPaths& paths) {
  require(std::filesystem::is_directory(paths.root), Status::no_input,
          "model.path: there is no folder {}", paths.root.string());
  const std::filesystem::path file = paths.root / "model_index.json";
  const std::string name = read_model_index(file).class_name;
  if (name == OpenSoraFolder::pipeline_class) return std::make_unique<OpenSora>(paths);
  require(name == CogVideoXFolder::pipeline_class, Status::data,
          "{}: the pipeline is {}, and {} or {} is expected", file.string(), name,
          CogVideoXFolder::pipeline_class, OpenSoraFolder::pipeline_class);
  return std::make_unique<CogVideoX>(paths);
}

}  // namespace reelmesh::pipeline
