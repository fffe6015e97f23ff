#include "forecast/simulated_job.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "store/trace_file.hpp"

namespace reelmesh {
namespace {

// What is known of the computer of a rank.
RankHost host_of(const JobPlan& planned, int rank) {
  const Plan& plan = planned.plan;
  const MachineTimes& machine = *planned.predicted_by.machine;
  return {fmt::format("node{}", plan.node[static_cast<std::size_t>(rank)]), machine.processor, "",
          planned.on_gpu ? machine.name : "cpu", ""};
}

RankRecord record_of(const JobPlan& planned, int rank) {
  const Plan& plan = planned.plan;
  const RankHost host = host_of(planned, rank);
  RankRecord record;
  record.host = host.host;
  record.device = host.device;
  record.role = plan.roles.of(rank);
  record.threads = plan.memory.threads;
  if (!plan.memory.limits.empty()) {
    record.memory_limit_bytes = plan.memory.limits[static_cast<std::size_t>(rank)];
  }
  record.predicted_memory_bytes = plan.memory.peak(rank);
  return record;
}

// The spans of a rank with waits in between, and up to the end of the job; none between a failure
// and the next start.
std::vector<trace::Span> with_waits(const std::vector<trace::Span>& spans,
                                    const Simulation& simulation) {
  const auto nanoseconds = [](double seconds) { return std::llround(seconds * 1e9); };
  std::vector<trace::Span> all;
  std::int64_t reached = 0;
  const auto wait_until = [&](std::int64_t time) {
    const auto failure = std::ranges::find_if(simulation.failures, [&](const auto& one) {
      return nanoseconds(one.time) >= reached && nanoseconds(one.time) < time;
    });
    const std::int64_t end =
        failure == simulation.failures.end() ? time : nanoseconds(failure->time);
    if (end <= reached) return;
    all.push_back({.name = trace::spans::wait.name,
                   .lane = trace::spans::wait.lane,
                   .start_ns = reached,
                   .duration_ns = end - reached});
  };
  for (const trace::Span& span : spans) {
    wait_until(span.start_ns);
    all.push_back(span);
    reached = std::max(reached, span.start_ns + span.duration_ns);
  }
  wait_until(nanoseconds(simulation.seconds));
  return all;
}

}  // namespace

void require_new(const std::filesystem::path& folder) {
  std::error_code error;
  const auto type = std::filesystem::symlink_status(folder, error).type();
  if (type == std::filesystem::file_type::not_found) return;
  const bool empty = std::filesystem::is_directory(folder, error) &&
                     std::filesystem::is_empty(folder, error) && !error;
  require(empty, Status::cannot_create,
          "plan simulate: {} is there and not an empty folder, expected a new one",
          folder.string());
}

void write_simulation(const std::filesystem::path& folder, const Simulation& simulation,
                      const Job& job, const JobPlan& planned, const ProgramInfo& program,
                      const nlohmann::json& described) {
  require_new(folder);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, Status::cannot_create, "plan simulate: {} cannot be created: {}", folder.string(),
          error.message());
  std::vector<RankRecord> ranks;
  std::vector<RankHost> hosts;
  for (int rank = 0; rank < planned.plan.ranks; ++rank) {
    ranks.push_back(record_of(planned, rank));
    hosts.push_back(host_of(planned, rank));
  }
  using namespace std::chrono;
  const auto start = system_clock::now();
  const auto end =
      start + duration_cast<system_clock::duration>(duration<double>(simulation.seconds));
  std::vector<std::vector<trace::Span>> spans;
  for (const auto& of_rank : simulation.spans) spans.push_back(with_waits(of_rank, simulation));
  write_simulated_trace(folder, start, ranks, spans);
  JobRecord record = job_record(job, planned, program, std::move(hosts), planned.on_gpu, "");
  record.status = "simulated";
  record.trace = true;
  record.start = iso8601(start);
  record.end = iso8601(end);
  record.plan = described.at("description");
  record.plan_json = described.dump(2);
  record.predicted_seconds = described.at("predicted").at("job_seconds");
  record.clips.resize(planned.clips.size());
  set_requests(record.clips, job, planned);
  write_job(folder, record);
}

}  // namespace reelmesh
