#include "pipeline/new_plan.hpp"

#include <algorithm>
#include <array>

#include "base/log.hpp"
#include "base/stop.hpp"
#include "comm/group_values.hpp"
#include "forecast/choice.hpp"
#include "forecast/comparison.hpp"
#include "job/host_memory.hpp"
#include "layout/convolutions.hpp"
#include "pipeline/failures.hpp"
#include "tensor/device_space.hpp"
#include "tensor/memory.hpp"

namespace reelmesh::pipeline {
namespace {

constexpr const char* saved = "what is done is saved; run again with --output.if-exists resume";

// "2 replicas of ring 2, sharded weights"
std::string in_short(const JobPlan& planned) {
  const Plan& plan = planned.plan;
  std::string text = layout_text(plan);
  if (planned.tail) text += ", then " + layout_text(*planned.tail);
  text += fmt::format(", {} weights", name_of(plan.weights.residence));
  if (plan.memory.experts_in_turn) text += ", experts in turn";
  if (plan.memory.offloads) return text + ", transformer and decoder in turn";
  return text + (plan.memory.unloads_decoder ? ", decoder unloaded" : "");
}

// Of NCCL on a rank; what is made stays until the job ends.
std::int64_t connections(const MemoryPlan& memory, std::size_t rank) {
  return std::max(memory.ranks.at(rank).text_connections, memory.ranks.at(rank).connections);
}

// What each rank can have, if ranks that share a GPU or a host have equal parts of it. Collective.
std::vector<std::int64_t> rooms_together(const comm::Group& world, const Devices& found,
                                         const MemoryPlan& memory) {
  const comm::Group host = world.on_this_host();
  const Device device = found.device;
  if (!device.is_cuda()) {
    const auto used = static_cast<std::int64_t>(host.sum(static_cast<double>(resident_bytes())));
    const std::int64_t all = std::min(host_memory().with_swap, used + available_host_memory());
    return comm::all_gather_value(world, all / host.size());
  }
  const std::int64_t own = device_memory(device).present + device_space(device).pooled;
  const std::vector<std::string> buses = host.all_gather(pci_bus(device));
  const std::vector<std::int64_t> all = comm::all_gather_value(host, own);
  std::int64_t sum = unused_device_memory(device), sharing = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (buses[i] != pci_bus(device)) continue;
    sum += all[i];
    ++sharing;
  }
  // Program and connections are there already.
  const std::int64_t there =
      memory.program + connections(memory, static_cast<std::size_t>(world.rank()));
  return comm::all_gather_value(world, there + sum / std::max<std::int64_t>(1, sharing));
}

// Lowers the limits of ranks of which the new plan takes what connections of the old one hold. →
// whether there are any.
bool lower_by_connections(const MemoryPlan& before, const MemoryPlan& now,
                          std::vector<std::int64_t>& limits) {
  bool lowered = false;
  for (std::size_t rank = 0; rank < limits.size(); ++rank) {
    const std::int64_t held = connections(before, rank) - connections(now, rank);
    if (held <= 0 || now.peak(static_cast<int>(rank)) + held <= limits[rank]) continue;
    limits[rank] -= held;
    lowered = true;
  }
  return lowered;
}

}  // namespace

bool NewPlans::wanted_together(const comm::Group& world) {
  std::array<std::int64_t, 2> votes{stop::cause(),
                                    stop::new_plan_requested() ? stop::new_plans_requested() : 0};
  world.max(votes);
  number_ = static_cast<int>(votes[1]);
  return votes[0] == stop::none && number_ > 0;
}

void NewPlans::withdraw_together(const comm::Group& world) {
  stop::new_plan_made(static_cast<int>(world.max(std::int64_t{stop::new_plans_requested()})));
}

// Of the lowest rank that has found one.
std::string NewPlans::shortage_together(const comm::Group& world) {
  const MemoryShortage own = watch_.found().value_or(MemoryShortage{});
  watch_.forget();
  const int rank = std::max(0, found_on(world.max(vote_if(!own.found.empty(), world)), world));
  short_rank_ = comm::broadcast_value(world, number_of(log::rank()), rank);
  within_step_ = comm::broadcast_value(world, own.within_step ? 1 : 0, rank) != 0;
  return world.broadcast(own.found, rank);
}

// By rank of the plan, not as launched: the order of the ranks is not to change.
Conditions NewPlans::conditions_together(const comm::Group& world, const Plan& plan) const {
  Conditions there = conditions_;
  PlanMachine& machine = there.machine;
  std::vector<std::int64_t> limits = rooms_together(world, found_, plan.memory);
  if (!machine.limits_are_free_memory) {  // they are those that the job gives
    const std::vector<std::int64_t> asked = machine.memory_limits.in_plan_order(plan.launched);
    for (std::size_t i = 0; i < asked.size(); ++i) limits[i] = std::min(limits[i], asked[i]);
  }
  if (within_step_) {  // the plan was too low; so are others
    for (std::int64_t& limit : limits) limit -= (made_ + 1) * (limit / 10);
  }
  machine.memory_limits = {std::move(limits), true};
  machine.limits_are_free_memory = true;
  machine.node_of = plan.node;
  machine.rank_weights = {plan.rank_weights, true};
  if (there.node_bytes > 0) {
    there.node_bytes =
        static_cast<std::int64_t>(world.min(static_cast<double>(host_memory().with_swap)));
  }
  return there;
}

std::string NewPlans::make_together(const comm::Group& world, JobPlan& planned, const Make& make) {
  const std::string shortage = shortage_together(world);
  const auto refuse_unless = [&](bool holds, const std::string& why) {
    if (holds) return;
    throw Error(Status::unavailable, fmt::format("{}; {}; {}", shortage, why, saved),
                LaunchedRank{short_rank_});
  };
  refuse_unless(made_ < max_new_plans,
                fmt::format("the job was planned again {} times already", max_new_plans));
  release_free_memory();
  release_pooled_memory(found_.device);
  world.barrier();  // before free memory is measured
  Conditions there = conditions_together(world, planned.plan);
  const std::vector<LaunchedRank> launched = planned.plan.launched;
  const MemoryPlan memory = planned.plan.memory;
  const std::string before = in_short(planned);
  Job job = job_;
  job.parallel.order = Order::rank;
  make(job, there);
  if (lower_by_connections(memory, planned.plan.memory, there.machine.memory_limits.values)) {
    make(job, there);
  }
  refuse_unless(fits(planned.plan, there),
                fmt::format("no layout fits what there is: {}", excess_text(planned.plan.memory)));
  planned.plan.launched = launched;
  if (planned.tail) planned.tail->launched = launched;
  agree_on_convolutions(world, found_.device, planned.convolutions, job.numerics);
  ++made_;
  stop::new_plan_made(number_);
  const std::string line = fmt::format("rank {} {}; planned again: {} instead of {}", short_rank_,
                                       shortage, in_short(planned), before);
  log::warning("{}", line);
  return line;
}

}  // namespace reelmesh::pipeline
