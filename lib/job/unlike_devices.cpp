#include "job/unlike_devices.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/group_values.hpp"
#include "ops/products.hpp"

namespace reelmesh {
namespace {

// "rank 2", "ranks 0-6, 9"; ascending.
std::string ranks_text(const std::vector<int>& ranks) {
  constexpr int max = 8;  // runs of ranks
  std::string text;
  int runs = 0;
  for (std::size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    if (++runs > max) {
      text += ", ...";
      break;
    }
    for (end = begin + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    text += text.empty() ? "" : ", ";
    text += std::to_string(ranks[begin]);
    if (end - begin > 1) text += fmt::format("-{}", ranks[end - 1]);
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", text);
}

// Where a rank lacks NCCL, none sends by it (Transport::automatic), and its version does not
// matter.
void forget_unused_nccl(std::vector<std::vector<Fact>>& of_ranks) {
  const auto lacks = [](const std::vector<Fact>& facts) {
    return facts.back() == Fact{nccl_name, not_found};
  };
  if (std::ranges::none_of(of_ranks, lacks)) return;
  for (std::vector<Fact>& facts : of_ranks) facts.pop_back();
}

// A value that ranks have.
struct Found {
  std::string value;
  std::vector<int> ranks;
};

}  // namespace

std::string differences_text(const std::vector<std::vector<Fact>>& of_ranks) {
  std::string text;
  for (std::size_t i = 0; i < of_ranks.front().size(); ++i) {
    std::vector<Found> values;
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
      const std::string& value = of_ranks[rank].at(i).second;
      auto same = std::ranges::find(values, value, &Found::value);
      if (same == values.end()) same = values.insert(values.end(), Found{value, {}});
      same->ranks.push_back(static_cast<int>(rank));
    }
    if (values.size() == 1) continue;
    text += fmt::format("{}{}: ", text.empty() ? "" : "; ", of_ranks.front()[i].first);
    for (std::size_t v = 0; v < values.size(); ++v) {
      text += fmt::format("{}{} ({})", v == 0 ? "" : ", ", values[v].value,
                          ranks_text(values[v].ranks));
    }
  }
  return text;
}

namespace {

// The facts of all ranks, which have the same names.
std::vector<std::vector<Fact>> gather(const comm::Group& world, const std::vector<Fact>& own) {
  std::vector<std::string> values;
  for (const auto& [name, value] : own) values.push_back(value);
  std::vector<std::vector<Fact>> of_ranks;
  for (const std::vector<std::string>& found : comm::all_gather_texts(world, values)) {
    std::vector<Fact>& facts = of_ranks.emplace_back(own);
    for (std::size_t i = 0; i < facts.size(); ++i) facts[i].second = found.at(i);
  }
  return of_ranks;
}

// devices: "GPUs"; remedy: what users can do.
void require_like(const std::vector<std::vector<Fact>>& of_ranks, const Job& job,
                  std::string_view devices, std::string_view remedy) {
  const std::string differences = differences_text(of_ranks);
  if (differences.empty()) return;
  require(!job.numerics.reproducible, Status::unavailable,
          "the {} of the ranks differ, so bits would depend on the layout: {}; {}, or "
          "numerics.reproducible = no",
          devices, differences, remedy);
  log::warning("the {} of the ranks differ, so bits may depend on the layout: {}", devices,
               differences);
}

}  // namespace

void require_like_gpus(const comm::Group& world, const Job& job, Device device) {
  if (world.size() == 1) return;
  std::vector<std::vector<Fact>> of_ranks =
      gather(world, facts_of(device, job.transport != Transport::mpi));
  forget_unused_nccl(of_ranks);
  require_like(of_ranks, job, "GPUs", "use hosts with the same GPUs, drivers and libraries");
}

void require_like_processors(const comm::Group& world, const Job& job) {
  const Fact own{"vector instructions", ops::vector_instructions()};
  require_like(
      gather(world, {own}), job, "processors",
      "use hosts with the same vector instructions, or set ONEDNN_MAX_CPU_ISA on all ranks to "
      "instructions that all have");
}

}  // namespace reelmesh
