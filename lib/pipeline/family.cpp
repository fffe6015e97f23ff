#include "pipeline/family.hpp"

#include "base/trace.hpp"
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

// Together: exchanges on a device wait for device.timeout at most, and disks are not equally fast.
template <class Read>
void load_on(const comm::Group& group, Device device, const Read& read) {
  if (!group.member()) return;
  {
    const trace::Scope scope("load", trace::Level::stages, "file");
    read();
  }
  if (device.is_cuda()) group.barrier();
}

}  // namespace

DenoiseStage::DenoiseStage(const comm::Group& world, const Plan& plan)
    : world_(world), plan_(plan), groups_(groups_of(world, plan.denoise)) {}

void DenoiseStage::load(Device device) {
  for (const comm::Group& group : groups_) {
    load_on(group, device, [&] { read_weights(device); });
  }
}

DecodeStage::DecodeStage(const comm::Group& world, const Plan& plan)
    : world_(world),
      group_(world.range(plan.decode.first, plan.decode.count)),
      ranks_(plan.decode) {}

void DecodeStage::load(Device device) {
  load_on(group_, device, [&] { read_weights(device); });
}

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
