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

namespace {

std::string options_text(const Plan& plan, Shard shard) {
  const Roles& roles = plan.roles;
  const Mesh& mesh = plan.sizes.front().denoise.front().mesh;
  std::string text;
  const auto add = [&](const char* option, const auto& value) {
    text += fmt::format("{}--parallel.{} {}", text.empty() ? "" : " ", option, value);
  };
  const bool split = roles.mode == Mode::split;
  add("mode", split ? "split" : "phased");
  if (split) {
    add("text", roles.text.count);
    add("decode", roles.decode.front().count);
  }
  add("replicas", roles.denoise.size());
  add("cfg", mesh.cfg);
  add("ring", mesh.ring);
  add("ulysses", mesh.ulysses);
  if (shard != Shard::automatic) add("shard", name_of(shard));
  add("weights", name_of(plan.weights.residence));
  return text;
}

bool same_layout(const ComparedPlan& a, const ComparedPlan& b) {
  return a.layout == b.layout && a.cut == b.cut && a.weights == b.weights;
}

}  // namespace

ComparedPlan in_short(const JobPlan& planned, const std::vector<BatchOutline>& batches,
                      const ParallelRequest& request) {
  const Plan& plan = planned.plan;
  ComparedPlan compared;
  compared.ranks = plan.ranks;
  compared.request = request;
  compared.layout = layout_text(plan);
  if (planned.tail) compared.layout += ", then " + layout_text(*planned.tail);
  compared.cut = shown_cut(plan.sizes.front().denoise.front().tokens);
  compared.options = options_text(plan, request.shard);
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
  for (Candidate& candidate : layouts_of_job(planned, job, conditions, batches)) {
    static_cast<JobLayout&>(planned) = std::move(candidate.layout);
    try {
      ComparedPlan found = in_short(planned, batches, candidate.request);
      const bool known = std::ranges::any_of(
          plans, [&](const ComparedPlan& other) { return same_layout(found, other); });
      if (!known) plans.push_back(std::move(found));
    } catch (const Error& error) {
      if (error.status() != Status::data) throw;
      unknown = error.what();  // the machine file lacks what this plan needs: a link
    }
  }
  require(!plans.empty() || unknown.empty(), Status::data, "{}", unknown);
  require(!plans.empty(), Status::unavailable, "no layout of {} ranks fits",
          conditions.machine.ranks);
  for (ComparedPlan& plan : plans) {
    plan.equal =
        plan.prediction.job <= (1 + stated_error(*job.machine)) * plans.front().prediction.job;
  }
  return plans;
}

std::string comparison_text(const std::vector<ComparedPlan>& plans, bool with_ranks) {
  std::vector<std::string> header{"layout", "cut", "weights"};
  if (with_ranks) header.emplace_back("ranks");
  for (const char* name : {"job", "step", "network", "decode", "idle", "memory"}) {
    header.emplace_back(name);
  }
  if (with_ranks) {
    header.insert(header.end(), {"rank hours", "efficiency"});
  } else {
    header.emplace_back("than auto");
  }
  Table table(header, 3);
  for (const ComparedPlan& plan : plans) {
    const Prediction& p = plan.prediction;
    const SizePrediction& size = p.sizes.front();
    const double step = size.step.total();
    const bool is_auto = !with_ranks && &plan == &plans.front();
    std::vector<std::string> row{(is_auto ? "auto: " : "") + plan.layout, plan.cut, plan.weights};
    if (with_ranks) row.push_back(std::to_string(plan.ranks));
    row.insert(row.end(), {format_short_seconds(p.job), format_short_seconds(step),
                           fmt::format("{:.0f} %", 100 * size.step.network / std::max(step, 1e-12)),
                           format_short_seconds(size.decode), fmt::format("{:.0f} %", 100 * p.idle),
                           format_bytes(static_cast<double>(plan.memory))});
    if (with_ranks) {
      row.push_back(fmt::format("{:.3g}", p.job * plan.ranks / 3600));
      row.push_back(fmt::format("{:.0f} %", 100 * plan.efficiency));
    } else {
      const double more = p.job / plans.front().prediction.job - 1;
      row.push_back(is_auto ? ""
                            : fmt::format("{:+.1f} %{}", 100 * more, plan.equal ? " =" : "  "));
    }
    table.row(std::move(row));
  }
  return table.str();
}

nlohmann::json describe(const std::vector<ComparedPlan>& plans) {
  nlohmann::json all = nlohmann::json::array();
  for (const ComparedPlan& plan : plans) {
    const Prediction& p = plan.prediction;
    all.push_back({{"ranks", plan.ranks},
                   {"layout", plan.layout},
                   {"cut", plan.cut},
                   {"options", plan.options},
                   {"weights", plan.weights},
                   {"memory", plan.memory},
                   {"efficiency", plan.efficiency},
                   {"equal", plan.equal},
                   {"job_seconds", p.job},
                   {"step_seconds", p.sizes.front().step.total()},
                   {"network_seconds", p.sizes.front().step.network},
                   {"decode_seconds", p.sizes.front().decode},
                   {"idle", p.idle}});
  }
  return all;
}

}  // namespace reelmesh
