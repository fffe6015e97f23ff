#include "pipeline/memory_watch.hpp"

#include <algorithm>
#include <utility>

#include "base/memory_in_use.hpp"
#include "base/stop.hpp"
#include "base/units.hpp"
#include "job/host_memory.hpp"
#include "tensor/device_space.hpp"

namespace reelmesh::pipeline {
namespace {

// used: by this rank; all: there is; left: of that.
void publish(std::int64_t used, std::int64_t all, std::int64_t left, const MemoryPlan& memory,
             int rank) {
  measured_memory.used = used;
  measured_memory.limit =
      memory.limits.empty() ? all : std::min(all, memory.limits[static_cast<std::size_t>(rank)]);
  measured_memory.others = std::max<std::int64_t>(0, all - left - used);
}

const char* doing(Stage stage) {
  switch (stage) {
    case Stage::text:
      return "encodes prompts";
    case Stage::input:
      return "encodes inputs";
    case Stage::denoise:
      return "denoises";
    case Stage::decode:
      return "decodes";
  }
  return "";
}

}  // namespace

std::int64_t planned_bytes(Stage stage, const MemoryPlan& memory, int rank) {
  switch (stage) {
    case Stage::text:
      return memory.text(rank);
    case Stage::input:
      return memory.encode(rank);
    case Stage::denoise:
      return memory.denoise(rank);
    case Stage::decode:
      return memory.decode(rank);
  }
  return 0;
}

// Program and connections are on the GPU already, or are about to be.
std::int64_t MemoryWatch::room_on_gpu(Stage next, const MemoryPlan& memory, int rank) const {
  const DeviceSpace space = device_space(device_);
  const std::int64_t present = device_memory(device_).present,
                     left = space.pooled + unused_device_memory(device_);
  publish(present, space.total, left, memory, rank);
  const RankMemory& mine = memory.ranks.at(static_cast<std::size_t>(rank));
  const std::int64_t connections = next == Stage::text ? mine.text_connections : mine.connections;
  const std::int64_t room = memory.program + connections + present + left;
  const bool was_short = !memory.fits(rank);
  if (!was_short || room < memory.limits[static_cast<std::size_t>(rank)]) return room;
  return std::max(room, planned_bytes(next, memory, rank));
}

std::int64_t MemoryWatch::room_on_host(Stage next, const Plan& plan, int rank) const {
  constexpr double tolerance = 1.1;  // as require_host_memory()
  const std::int64_t all = host_memory().with_swap, left = available_host_memory(),
                     resident = resident_bytes();
  publish(resident, all, left, plan.memory, rank);
  std::int64_t of_node = 0;
  for (int other = 0; other < plan.ranks; ++other) {
    const bool shares = plan.node.at(static_cast<std::size_t>(other)) ==
                        plan.node.at(static_cast<std::size_t>(rank));
    if (shares) of_node += planned_bytes(next, plan.memory, other);
  }
  const std::int64_t room = resident + left;
  const auto max = tolerance * static_cast<double>(all);
  if (static_cast<double>(of_node) <= max) return room;
  const double share =
      static_cast<double>(planned_bytes(next, plan.memory, rank)) / static_cast<double>(of_node);
  return std::min(room, static_cast<std::int64_t>(share * max));
}

void MemoryWatch::look(Stage next, const Plan& plan, int rank) {
  const std::int64_t needed = planned_bytes(next, plan.memory, rank);
  const std::int64_t room =
      device_.is_cuda() ? room_on_gpu(next, plan.memory, rank) : room_on_host(next, plan, rank);
  if (needed <= room) return;
  const auto shown = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  request({fmt::format("needs {} while it {}, found room for {}", shown(needed), doing(next),
                       shown(room)),
           false});
}

void MemoryWatch::note_failed_step(const std::string& lack) { request({lack, true}); }

void MemoryWatch::request(MemoryShortage found) {
  if (!found_) found_ = std::move(found);
  stop::request_new_plan();
}

}  // namespace reelmesh::pipeline
