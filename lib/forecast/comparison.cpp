#include "forecast/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/report.hpp"
#include "base/units.hpp"
#include "forecast/describe.hpp"
#include "job/machine_file.hpp"

namespace reelmesh {
namespace {

std::string layout_text(const Plan& plan) {
  const Roles& roles = plan.roles;
  const Mesh& mesh = plan.sizes.front().denoise.front().mesh;
  std::string text;
  if (roles.mode == Mode::split) {
    text = fmt::format("split, {} text, {} decode; ", roles.text.count, roles.decode.front().count);
  }
  if (roles.denoise.size() > 1) text += fmt::format("{} replicas of ", roles.denoise.size());
  return text + (mesh.ranks() == 1 ? "1 rank" : shown(mesh));
}

std::string options_text(const Plan& plan) {
  const Roles& roles = plan.roles;
  const Mesh& mesh = plan.sizes.front().denoise.front().mesh;
  std::string text;
  const auto add = [&](const char* option, const auto& value) {
    text += fmt::format("{}--parallel.{} {}", text.empty() ? "" : " ", option, value);
  };
  if (roles.mode == Mode::split) {
    add("mode", "split");
    add("text", roles.text.count);
    add("decode", roles.decode.front().count);
  }
  add("replicas", roles.denoise.size());
  add("cfg", mesh.cfg);
  add("ring", mesh.ring);
  add("ulysses", mesh.ulysses);
  add("weights", name_of(plan.weights.residence));
  return text;
}

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int i = 1; i <= number; ++i) {
    if (number % i == 0) all.push_back(i);
  }
  return all;
}

bool permits(const std::optional<int>& asked, int value) { return !asked || *asked == value; }

// The meshes of a group of `ranks` ranks that a request leaves open, added to `requests`.
void add_meshes(const ParallelRequest& asked, int ranks, std::vector<ParallelRequest>& requests) {
  for (const int cfg : {1, 2}) {
    if (ranks % cfg != 0 || !permits(asked.cfg, cfg)) continue;
    for (const int ring : divisors(ranks / cfg)) {
      const int ulysses = ranks / cfg / ring;
      if (!permits(asked.ring, ring) || !permits(asked.ulysses, ulysses)) continue;
      ParallelRequest request = asked;
      request.cfg = cfg;
      request.ring = ring;
      request.ulysses = ulysses;
      requests.push_back(std::move(request));
    }
  }
}

// All of the job's requests but those that only differ in where weights are.
std::vector<ParallelRequest> open_requests(const ParallelRequest& asked, int ranks,
                                           std::size_t batches) {
  std::vector<ParallelRequest> requests;
  const auto add_groups = [&](ParallelRequest request, int for_denoising) {
    for (const int replicas : divisors(for_denoising)) {
      if (static_cast<std::size_t>(replicas) > batches && replicas > 1) break;
      if (!permits(asked.replicas, replicas)) continue;
      request.replicas = replicas;
      add_meshes(request, for_denoising / replicas, requests);
    }
  };
  if (asked.mode != Mode::split) {
    ParallelRequest phased = asked;
    phased.mode = Mode::phased;
    add_groups(phased, ranks);
  }
  if (asked.mode != Mode::phased && ranks >= 3) {
    ParallelRequest split = asked;
    split.mode = Mode::split;
    split.text = asked.text.value_or(1);
    split.decode = asked.decode.value_or(std::max(1, ranks / 8));
    const int left = ranks - *split.text - *split.decode;
    if (left > 0) add_groups(split, left);
  }
  return requests;
}

bool same_layout(const ComparedPlan& a, const ComparedPlan& b) {
  return a.layout == b.layout && a.weights == b.weights;
}

}  // namespace

ComparedPlan in_short(const JobPlan& planned, const std::vector<BatchOutline>& batches) {
  const Plan& plan = planned.plan;
  ComparedPlan compared;
  compared.ranks = plan.ranks;
  compared.layout = layout_text(plan);
  compared.options = options_text(plan);
  compared.weights = name_of(plan.weights.residence);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    compared.memory = std::max(compared.memory, plan.memory.peak(rank));
  }
  const auto predicted = predict(planned, batches);
  expect(predicted.has_value(), "a comparison without times");
  compared.prediction = *predicted;
  return compared;
}

std::vector<ComparedPlan> compare_plans(JobPlan& planned, const Job& job,
                                        const Conditions& conditions,
                                        std::span<const ClipOutline> clips) {
  require_machine(job);
  const std::vector<BatchOutline> batches = form_batches(clips, planned.kinds, job.batch);
  std::vector<ComparedPlan> plans;
  std::string unknown;
  const auto try_all = [&](const std::vector<ParallelRequest>& requests) {
    for_each_plan(planned, job, conditions, requests, [&](const ParallelRequest& request) {
      std::optional<ComparedPlan> predicted;
      try {
        predicted = in_short(planned, batches);
      } catch (const Error& error) {
        if (error.status() != Status::data) throw;
        unknown = error.what();  // the machine file lacks what this plan needs: a link
        return;
      }
      ComparedPlan& found = *predicted;
      found.request = request;
      const bool known = std::ranges::any_of(
          plans, [&](const ComparedPlan& other) { return same_layout(found, other); });
      if (!known) plans.push_back(std::move(found));
    });
    std::ranges::stable_sort(plans, {},
                             [](const ComparedPlan& plan) { return plan.prediction.job; });
  };
  try_all(open_requests(job.parallel, conditions.machine.ranks, batches.size()));
  require(!plans.empty() || unknown.empty(), Status::data, "{}", unknown);
  require(!plans.empty(), Status::unavailable, "no layout of {} ranks fits",
          conditions.machine.ranks);
  if (job.parallel.weights == WeightsChoice::automatic) {
    // Of the fastest layouts with other places for their weights.
    constexpr std::size_t few = 3;
    std::vector<ParallelRequest> others;
    for (std::size_t i = 0; i < std::min(few, plans.size()); ++i) {
      for (const WeightsChoice choice : {WeightsChoice::sharded, WeightsChoice::host}) {
        others.push_back(plans[i].request);
        others.back().weights = choice;
      }
    }
    try_all(others);
  }
  return plans;
}

std::string table_of(const std::vector<ComparedPlan>& plans, bool with_ranks) {
  std::vector<std::string> header{"layout", "weights"};
  if (with_ranks) header.emplace_back("ranks");
  for (const char* name : {"job", "step", "network", "decode", "idle", "memory"}) {
    header.emplace_back(name);
  }
  if (with_ranks) header.insert(header.end(), {"rank hours", "efficiency"});
  Table table(header, 2);
  for (const ComparedPlan& plan : plans) {
    const Prediction& p = plan.prediction;
    const SizePrediction& size = p.sizes.front();
    const double step = size.step.total();
    std::vector<std::string> row{plan.layout, plan.weights};
    if (with_ranks) row.push_back(std::to_string(plan.ranks));
    row.insert(row.end(), {format_short_seconds(p.job), format_short_seconds(step),
                           fmt::format("{:.0f} %", 100 * size.step.network / std::max(step, 1e-12)),
                           format_short_seconds(size.decode), fmt::format("{:.0f} %", 100 * p.idle),
                           format_bytes(static_cast<double>(plan.memory))});
    if (with_ranks) {
      row.push_back(fmt::format("{:.3g}", p.job * plan.ranks / 3600));
      row.push_back(fmt::format("{:.0f} %", 100 * plan.efficiency));
    }
    table.row(std::move(row));
  }
  return table.str();
}

nlohmann::json described(const std::vector<ComparedPlan>& plans) {
  nlohmann::json all = nlohmann::json::array();
  for (const ComparedPlan& plan : plans) {
    const Prediction& p = plan.prediction;
    all.push_back({{"ranks", plan.ranks},
                   {"layout", plan.layout},
                   {"options", plan.options},
                   {"weights", plan.weights},
                   {"memory", plan.memory},
                   {"efficiency", plan.efficiency},
                   {"job_seconds", p.job},
                   {"step_seconds", p.sizes.front().step.total()},
                   {"network_seconds", p.sizes.front().step.network},
                   {"decode_seconds", p.sizes.front().decode},
                   {"idle", p.idle}});
  }
  return all;
}

}  // namespace reelmesh
