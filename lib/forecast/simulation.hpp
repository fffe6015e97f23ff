#pragma once
// A job played through event by event, with predicted times.
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/trace.hpp"
#include "forecast/plan_job.hpp"

namespace reelmesh {

/// Failures of a simulated job. Each ends the job on all ranks; it is started again and goes on
/// from the clips that are written and the steps that are saved.
struct SimulatedFailures {
  double every = 0;   ///< mean seconds between two failures of one rank; 0: there are none
  double pause = 60;  ///< seconds from a failure to the next start
};

struct SimulatedFailure {
  double time = 0;  ///< seconds since the first start
  int rank = 0;
};

struct Simulation {
  double seconds = 0;  ///< from the first start to the end of the last clip
  std::vector<SimulatedFailure> failures;
  /// Whether the steps of a batch are one span, as there would be too many otherwise.
  bool whole_batches = false;
  /// For each rank in the order of their starts; nanoseconds since the first start. A span that a
  /// failure interrupts ends there.
  std::vector<std::vector<trace::Span>> spans;
};

/// Plays a job whose machine is known, with the replicas, queues, order and saving of `run`: every
/// rank loads and encodes, each replica takes the next batch when it is free, the ranks of `tail`
/// take over the last ones, and in split mode clips pass from stage to stage. The same failures
/// each time: with exponential intervals (no wear, no warm-up), ranks by chance. Without time:
/// messages between stages, hashing of weights, steps that sample.cache leaves out.
///
/// most_spans: about so many at most. Error(unavailable) if failures are so frequent that the job
/// does not end; errors as predict(). Time is linear in spans.
Simulation simulate(const Job& job, const JobPlan& planned, const SimulatedFailures& failures,
                    std::int64_t most_spans = 1'000'000);

/// As `simulated` of plan --json. undisturbed: seconds of the same job without
/// failures.
nlohmann::json describe(const Simulation& simulation, double undisturbed);

}  // namespace reelmesh
